from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from search_landscape import Bed, FakeBench

from modelblaster.knowledge.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bed():
    stores: list[Store] = []

    def make(times: Callable[[str, str], float], **settings: object) -> Bed:
        stores.append(Store())
        return Bed(FakeBench(times, **settings), stores[-1])

    yield make
    for store in stores:
        store.close()
