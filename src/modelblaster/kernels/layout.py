"""Order and merging of a nest's axes: memory order outermost to innermost, as few loops as all accesses allow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelblaster.kernels.dialect import CType
from modelblaster.kernels.ir import (
    INDEX_COMBINERS,
    Axis,
    Index,
    Load,
    Nest,
    Reduce,
    Store,
    arguments,
    reachable,
    with_arguments,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelblaster.kernels.ir import Node

Strides = tuple[int, ...]


def compacted(nest: Nest) -> Nest:
    """Without nodes that no store needs."""
    needed = sorted(reachable(nest, [store.value for store in nest.stores]))
    new = {old: k for k, old in enumerate(needed)}
    nodes = tuple(with_arguments(nest.nodes[old], tuple(new[a] for a in arguments(nest.nodes[old]))) for old in needed)
    return Nest(nest.axes, nodes, tuple(replace(store, value=new[store.value]) for store in nest.stores))


def normalized(nest: Nest) -> Nest:
    """The same nest with its axes in memory order and neighbours merged where every access allows it.

    A nest with an unevenly cut axis stays as it is.
    """
    if any(axis.limit for axis in nest.axes):
        return nest
    nest = _with_wide_indices(_sorted(nest))
    k = 0
    while k + 1 < len(nest.axes):
        if _mergeable(nest, k):
            nest = _merged(nest, k)
        else:
            k += 1
    return nest


def _accesses(nest: Nest) -> list[Strides]:
    loads = [node.strides for node in nest.nodes if isinstance(node, Load | Index)]
    return [store.strides for store in nest.stores] + loads


def with_strides(nest: Nest, axes: tuple[Axis, ...], change: Callable[[Strides], Strides]) -> Nest:
    """The nest over other axes, with every access expressed in them."""
    nodes = tuple(replace(n, strides=change(n.strides)) if isinstance(n, Load | Index) else n for n in nest.nodes)
    stores = tuple(replace(store, strides=change(store.strides)) for store in nest.stores)
    return Nest(axes, nodes, stores)


def _sorted(nest: Nest) -> Nest:
    """Axes by falling stride of the access that covers the most elements, stores before loads.

    Where no access covers the whole domain the order of the program's dimensions stays.
    """
    memory: list[Load | Store] = [*nest.stores, *(node for node in nest.nodes if isinstance(node, Load))]
    leader = next((access.strides for access in memory if all(access.strides)), None)
    if leader is None:
        return nest
    order = sorted(range(len(nest.axes)), key=lambda k: -abs(leader[k]))
    return with_strides(nest, tuple(nest.axes[k] for k in order), lambda strides: tuple(strides[k] for k in order))


def _mergeable(nest: Nest, k: int) -> bool:
    outer, inner = nest.axes[k], nest.axes[k + 1]
    if outer.reduced != inner.reduced or outer.limit or inner.limit:
        return False
    return all(strides[k] == strides[k + 1] * inner.size for strides in _accesses(nest))


def _merged(nest: Nest, k: int) -> Nest:
    outer, inner = nest.axes[k], nest.axes[k + 1]
    axes = (*nest.axes[:k], Axis(outer.size * inner.size, outer.reduced), *nest.axes[k + 2 :])
    return with_strides(nest, axes, lambda strides: (*strides[:k], *strides[k + 1 :]))


def _with_wide_indices(nest: Nest) -> Nest:
    """Indices as wide as the lanes: 64 bits where anything else in the nest is."""
    if width(nest) == 4:
        return nest

    def widened(node: Node) -> Node:
        if isinstance(node, Index) or (isinstance(node, Reduce) and node.combiner in INDEX_COMBINERS):
            return replace(node, ctype=CType.I64)
        return node

    return replace(nest, nodes=tuple(widened(node) for node in nest.nodes))


def width(nest: Nest) -> int:
    """Bytes of one lane: 8 if anything is computed in a 64-bit type, else 4."""
    return 8 if any(node.ctype in (CType.F64, CType.I64) for node in nest.nodes) else 4
