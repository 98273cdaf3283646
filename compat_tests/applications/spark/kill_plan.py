"""Order of the kills of a campaign, and choice of the lost replies: functions of a seed and nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from compat_tests.faults.fault_plan import NO_FAULT, UNTIL_RELEASED_S, Decision, Fault
from spark_connectors.wire.api import Api
from spark_connectors.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from spark_connectors.wire.messages.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from spark_connectors.wire.messages.end_txn import END_TXN
from spark_connectors.wire.messages.fetch import FETCH
from spark_connectors.wire.messages.init_producer_id import INIT_PRODUCER_ID
from spark_connectors.wire.messages.list_offsets import LIST_OFFSETS
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH
from spark_connectors.wire.messages.produce import PRODUCE
from spark_connectors.wire.messages.txn_offset_commit import TXN_OFFSET_COMMIT

KILLS_OF_LIFE: Final = (4, 10)  # a driver takes long to start, so much happens in the life of one
CLUSTER_EVERY: Final = 3  # lives: one of so many has executors that are processes

# The requests that commit a micro-batch, in this order.
COMMITTING: Final = (
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    ADD_PARTITIONS_TO_TXN,
    PRODUCE,
    ADD_OFFSETS_TO_TXN,
    TXN_OFFSET_COMMIT,
    END_TXN,
)
# The requests of those that are refused once another process has begun. The others are answered: then the process
# begins itself, or learns that the micro-batch is written, or is refused at its next request.
FENCED_AT: Final = COMMITTING[2:]
# The share of replies that are lost.
LOST: Final[dict[Api[Any, Any], float]] = {
    **dict.fromkeys(COMMITTING, 0.05),
    END_TXN: 0.25,
    FETCH: 0.02,
    LIST_OFFSETS: 0.02,
}
NAMES: Final = {api.key: api.name for api in LOST}
_LOST_BY_KEY: Final = {api.key: share for api, share in LOST.items()}


class Target(Enum):
    """The process to kill."""

    BROKER = "broker"
    WORKER = "Python process"  # that runs tasks, plans or commits
    EXECUTOR = "executor"
    DRIVER = "driver"  # with all it has started
    DRIVER_ALONE = "driver in a commit that goes on"


@dataclass(frozen=True)
class Life:
    """The life of a driver: the kills meanwhile, and at last its own. `held_at`: the request at which its commit is
    held, if the commit goes on after it."""

    is_cluster: bool
    targets: tuple[Target, ...]
    held_at: Api[Any, Any]


def lives(seed: int, kills: int) -> list[Life]:
    """The lives of a campaign with so many kills in all. The commit of the first driver goes on after it, and is
    fenced."""
    choice = random.Random(seed)
    found: list[Life] = []
    while kills > 0:
        count = min(kills, choice.randint(*KILLS_OF_LIFE))
        is_cluster = len(found) % CLUSTER_EVERY == 1
        others = (Target.BROKER, Target.EXECUTOR if is_cluster else Target.WORKER)
        last = choice.choice((Target.DRIVER, Target.DRIVER_ALONE)) if found else Target.DRIVER_ALONE
        held_at = choice.choice(COMMITTING if found else FENCED_AT)
        found.append(Life(is_cluster, (*choice.choices(others, k=count - 1), last), held_at))
        kills -= count
    return found


class Losses:
    """A plan for the proxy that loses replies. Another thread can tell it to hold a request, once."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._to_hold: int | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the request that is to be held."""
        return self._to_hold is not None

    def hold_next(self, api_key: int) -> None:
        self._to_hold = api_key

    def decide(self, api_key: int, version: int, number: int) -> Decision:
        if api_key == self._to_hold:
            self._to_hold = None
            return Decision(Fault.REQUEST_DELAYED, UNTIL_RELEASED_S)
        choice = random.Random(f"{self._seed} {api_key} {version} {number}")
        return Decision(Fault.REPLY_LOST) if choice.random() < _LOST_BY_KEY.get(api_key, 0) else NO_FAULT
