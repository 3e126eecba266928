"""The memory as one run on one device sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelblaster.knowledge.arms import ArmStatistics, device_classes
from modelblaster.knowledge.store import VerifiedImplementation

if TYPE_CHECKING:
    from modelblaster.knowledge.store import Store
    from modelblaster.records.candidate import Candidate
    from modelblaster.records.outcome import Outcome
    from modelblaster.records.timing import Timing


class Memory:
    """A store, scoped to a run and a device. Raises StorageError as the store does."""

    def __init__(self, store: Store, *, run: str, backend: str, device: str) -> None:
        self._store = store
        self._run = run
        self._device = device
        self._classes = device_classes(backend, device)

    def record(self, outcome: Outcome) -> None:
        """Learn from an outcome, once."""
        self._store.record(outcome, run=self._run, device_classes=self._classes)

    def arms(self, state: str) -> dict[str, ArmStatistics]:
        """Rewards of the techniques in a state on this very device."""
        return self._store.arms(state, self._classes[0])

    def broader_arms(self, state: str) -> dict[str, ArmStatistics]:
        """Rewards on other devices: for each technique those of the narrowest class that has any."""
        own = self.arms(state)
        found: dict[str, ArmStatistics] = {}
        for device_class in self._classes[1:]:
            for technique, arm in self._store.arms(state, device_class).items():
                elsewhere = arm.without(own.get(technique, ArmStatistics()))
                if elsewhere.n > 0:
                    found.setdefault(technique, elsewhere)
        return found

    def keep(self, slot: str, family: str, candidate: Candidate, timing: Timing) -> None:
        """Remember a verified implementation of a slot."""
        implementation = VerifiedImplementation(
            slot, family, self._device, candidate.digest, candidate.schedule, timing.median_ns, timing.protocol
        )
        self._store.keep(implementation)

    def recall(self, slot: str) -> str | None:
        """The schedule of the fastest verified implementation of a slot on this device."""
        for implementation in self._store.recall(slot, self._device):
            if implementation.schedule:
                return implementation.schedule
        return None
