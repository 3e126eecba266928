"""Messages between the judge and its reference process: framed pickles, with tensors in shared memory beside them.

Both ends are ours. Every message travels as a length, a pickled body and, when it carries tensors, one memfd passed
along the socket; the receiver maps it, so that nothing is copied through the socket. The mapping lives as long as a
tensor of it does.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from modelblaster.records.tensor import span

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

_HEADER = struct.Struct("<Q")
_ALIGNMENT = 64


class Place(NamedTuple):
    """Where one tensor lies in the shared memory of its message."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    nbytes: int


class Closed(Exception):
    """The other end is gone."""


def send(channel: socket.socket, body: object, tensors: Mapping[str, torch.Tensor]) -> None:
    """Send a message.

    Raises:
        Closed: the other end is gone.
        TimeoutError: it does not read.
    """
    places, size = _places(tensors)
    file = _filled(places, size, tensors) if size else None
    try:
        text = pickle.dumps((body, places, size))
        header = _HEADER.pack(len(text))
        if file is None:
            channel.sendall(header)
        else:
            _send_descriptor(channel, header, file)
        channel.sendall(text)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed(str(error)) from error
    finally:
        if file is not None:
            os.close(file)


def receive(channel: socket.socket, *, until: float | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
    """The next message. `until` is a moment of `time.monotonic`.

    Raises:
        Closed: the other end is gone.
        TimeoutError: nothing came in time.
    """
    header, files = _read_header(channel, until)
    try:
        body, places, size = pickle.loads(_read(channel, _HEADER.unpack(header)[0], until))
        if not files:
            return body, {place.name: torch.empty(place.shape, dtype=place.dtype) for place in places}
        memory = torch.frombuffer(mmap.mmap(files[0], size), dtype=torch.uint8)
    finally:
        for file in files:
            os.close(file)
    return body, {place.name: _tensor(memory, place) for place in places}


def _places(tensors: Mapping[str, torch.Tensor]) -> tuple[list[Place], int]:
    places = []
    offset = 0
    for name, tensor in tensors.items():
        strides = tuple(tensor.stride()) if _is_dense(tensor) else tuple(_contiguous(tensor.shape))
        nbytes = tensor.numel() * tensor.element_size()
        places.append(Place(name, tensor.dtype, tuple(tensor.shape), strides, offset, nbytes))
        offset += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    return places, offset


def _filled(places: list[Place], size: int, tensors: Mapping[str, torch.Tensor]) -> int:
    file = os.memfd_create("tensors", os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    # Populated in one go: page by page, the faults would cost more than the copy.
    region = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    memory = torch.frombuffer(region, dtype=torch.uint8)
    for place in places:
        _tensor(memory, place).copy_(tensors[place.name].detach())
    return file


def _tensor(memory: torch.Tensor, place: Place) -> torch.Tensor:
    if place.nbytes == 0:
        return torch.empty(place.shape, dtype=place.dtype)
    flat = memory[place.offset : place.offset + place.nbytes].view(place.dtype)
    return flat.as_strided(place.shape, place.strides)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether every element of the storage between the first and the last is used exactly once."""
    expanded = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return not expanded and span(tuple(tensor.shape), tuple(tensor.stride())) == tensor.numel()


def _contiguous(shape: torch.Size) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


def _send_descriptor(channel: socket.socket, header: bytes, file: int) -> None:
    import array
    import socket as sockets

    rights = [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, array.array("i", [file]))]
    sent = channel.sendmsg([header], rights)
    if sent < len(header):
        channel.sendall(header[sent:])


def _read_header(channel: socket.socket, until: float | None) -> tuple[bytes, list[int]]:
    import socket as sockets

    _set_timeout(channel, until)
    try:
        header, files, _, _ = sockets.recv_fds(channel, _HEADER.size, 1)
    except ConnectionResetError as error:
        raise Closed(str(error)) from error
    if not header:
        raise Closed("the other end has closed")
    return header + _read(channel, _HEADER.size - len(header), until), list(files)


def _read(channel: socket.socket, count: int, until: float | None) -> bytes:
    parts = []
    while count > 0:
        _set_timeout(channel, until)
        try:
            part = channel.recv(min(count, 1 << 20))
        except ConnectionResetError as error:
            raise Closed(str(error)) from error
        if not part:
            raise Closed("the other end has closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _set_timeout(channel: socket.socket, until: float | None) -> None:
    if until is None:
        channel.settimeout(None)
        return
    left = until - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("the deadline has passed")
    channel.settimeout(left)
