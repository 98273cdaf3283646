"""Plan of kills: the request to the store at which a broker is killed, how far that request has come, and other faults.

A function of a seed and of the requests.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from compat_tests.features.object_stores.gate import Gate
from compat_tests.features.object_stores.store_faults import NO_FAULT, Decision, Fault

if TYPE_CHECKING:
    from compat_tests.features.object_stores.store_faults import StoreRequest

# The requests of a copy in their order, then those of deletions, reads and starts.
STEPS: Final = (
    "PUT manifest", "HEAD collected", "PUT segment", "HEAD segment", "GET manifest",
    "DELETE segment", "GET segment", "LIST manifest",
    "PUT probe", "GET probe", "HEAD probe", "DELETE probe", "LIST probe",
)  # fmt: skip
SELDOM: Final = ("PUT page", "GET page", "DELETE page", "HEAD page")  # the first ones are hit
SELDOM_MAX: Final = 5  # of each
FARTHEST: Final = 6  # one of so many requests of its kind since the last kill

# How far: nothing has come, half of it has, all of it has and the reply is lost, or will when the next broker is there.
HOW_FAR: Final = (Fault.REQUEST_LOST, Fault.REQUEST_CUT, Fault.REPLY_LOST, Fault.REPLY_LOST, Fault.LATE)
LATE_S: Final = (0.05, 4.0)

# Faults of other requests. Probes and owners are spared: a broker does not start if a store refuses those.
SPARED: Final = ("probe", "owner")
PASSING: Final = (
    Fault.SLOW_DOWN, Fault.CONFLICT, Fault.SKEWED, Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.LATE,
    Fault.SHORT_BODY, Fault.FLIPPED_BODY, Fault.STALE_LIST,
)  # fmt: skip
ONE_IN: Final = 60


class Kill(NamedTuple):
    kind: str
    number: int
    decision: Decision
    gate: Gate


def new_kill(kind: str, choice: random.Random) -> Kill:
    fault = choice.choice(HOW_FAR if kind.startswith(("PUT", "DELETE")) else (Fault.REQUEST_LOST, Fault.REPLY_LOST))
    number = 1 if kind.startswith("LIST") or kind.endswith("probe") else choice.randint(1, FARTHEST)
    gate = Gate()
    return Kill(kind, number, Decision(fault, choice.uniform(*LATE_S) if fault is Fault.LATE else 0.0, gate), gate)


class KillPlan:
    """A plan for one kill at a time, which another thread prepares. `kills` counts the kills by kind and fault."""

    def __init__(self, seed: int) -> None:
        self.kills = Counter[tuple[str, Fault]]()
        self._choice = random.Random(f"{seed} proxy")
        self._kill: Kill | None = None
        self._seen = Counter[str]()

    def prepare(self, kill: Kill) -> None:
        self._seen.clear()
        self._kill = kill

    def withdraw(self) -> bool:
        """False: a request was hit already, and is on its way to the gate."""
        kill, self._kill = self._kill, None
        return kill is not None

    def decide(self, request: StoreRequest) -> Decision:
        kill = self._kill
        self._seen[request.kind] += 1
        if kill is not None and self._is_hit(kill, request.kind):
            self._kill = None
            self.kills[request.kind, kill.decision.fault] += 1
            return kill.decision
        if request.kind.endswith(SPARED) or self._choice.randrange(ONE_IN):
            return NO_FAULT
        fault = self._choice.choice(PASSING)
        return Decision(fault, self._choice.uniform(*LATE_S) if fault is Fault.LATE else 0.0)

    def _is_hit(self, kill: Kill, kind: str) -> bool:
        if kind in SELDOM:
            return sum(count for (one, _), count in self.kills.items() if one == kind) < SELDOM_MAX
        return (kind, self._seen[kind]) == (kill.kind, kill.number)
