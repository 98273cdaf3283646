"""The object store of a run, and the states that the seed gives it: healthy for a while, then flaky, then away.

It outlives each broker process, and so do requests that are under way: a request that its broker has given up may take
effect when the next process runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import trio

from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.tier_plan import ROOT, StoreState, TierPlan
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation

LATE_MAX_S = 20.0
LATE_PUT_MS = 25_000  # how long the broker thinks that a request may be under way
STARTS = (f"{ROOT}probe/", "/owner/")  # keys that a start checks: wrong answers for them would stop the start
NAMES_PER_PARTITION = 3  # a key begins with cluster, topic and partition

_WRITES = ("lost", "reply lost", "late", "refused")
_KINDS = {
    Operation.PUT: (*_WRITES, "torn", "torn", "torn"),
    Operation.DELETE: _WRITES,
    Operation.GET: ("lost", "refused", "short", "flipped"),
    Operation.HEAD: ("lost", "refused"),
    Operation.LIST: ("lost", "refused", "stale"),
}
_OF_STARTS = frozenset({"lost", "reply lost", "late"})


@dataclass
class TierStore:
    """Decides the outcome of each request to `store`, until it is healed."""

    plan: TierPlan
    shared: Shared
    store: MemoryStore
    state: StoreState = StoreState.FINE
    _rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = self.shared.rng("store")
        if self.plan.is_on:
            self.store.has_files = self.plan.has_files
            self.store.fault = self._fault
            self.shared.history.store_healed = UNANSWERED

    async def run(self) -> None:
        """Change the state from time to time, until the load is over."""
        rng = self.shared.rng("weather")
        while not self.shared.is_over:
            self.state = rng.choice(self.plan.store_states)
            await trio.sleep(rng.choice((0.3, 1.0, 3.0)) * rng.uniform(0.5, 1.5))

    def heal(self) -> None:
        """End all faults for good, except of requests that are under way."""
        if self.plan.is_on:
            self.store.fault = self._slow
            self.shared.history.store_healed = self.shared.history.tick()

    def _slow(self, _operation: Operation, _key: str) -> Fault:
        return Fault(wait_s=self._rng.uniform(0.001, 0.02))

    def _fault(self, operation: Operation, key: str) -> Fault:
        fault = self._drawn(operation, key)
        if fault.is_short or fault.is_flipped:
            self.shared.history.wrong_bytes.append(self.shared.history.tick())
        self.shared.history.note("store", operation.value, key, fault)
        return fault

    def _drawn(self, operation: Operation, key: str) -> Fault:
        rng = self._rng
        if self.state is StoreState.AWAY:
            return Fault(wait_s=rng.choice((0.001, 0.2, 2.0)), is_lost=True)
        wait_s = rng.uniform(0.001, 0.02)
        if self.state is StoreState.FINE or rng.random() >= self.plan.fault_rate:
            return Fault(wait_s=wait_s)
        return self._of_kind(rng.choice(_KINDS[operation]), wait_s * rng.choice((1, 1, 20)), key)

    def _of_kind(self, kind: str, wait_s: float, key: str) -> Fault:
        if any(one in key for one in STARTS) and kind not in _OF_STARTS:
            return HEALTHY
        match kind:
            case "lost":
                return Fault(wait_s, is_lost=True)
            case "reply lost":
                return Fault(wait_s, is_reply_lost=True)
            case "late":
                return Fault(wait_s, late_s=self._rng.choice((0.05, 1.0, LATE_MAX_S)) * self._rng.random())
            case "refused":
                return Fault(wait_s, is_refused=True)
            case "short":
                return Fault(wait_s, is_short=True)
            case "flipped":
                return Fault(wait_s, is_flipped=True)
            case "stale":
                return Fault(wait_s, is_stale=True)
            case _:
                return Fault(wait_s, is_torn=is_segment(key))


def is_segment(key: str) -> bool:
    """Whether the key is that of a segment. Other objects of a partition have longer paths."""
    return key.removeprefix(ROOT).count("/") == NAMES_PER_PARTITION
