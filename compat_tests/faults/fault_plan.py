"""A plan that gives each request of a transaction its fault: a pure function of a seed.

No sockets: `faulty_proxy.py` carries the plan out. The requests of each API are taken in blocks, and in each block
every fault hits one request, so that a campaign of some length has had all of them, whatever its seed.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol


class Api(IntEnum):
    """The APIs that a transaction consists of."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Fault(Enum):
    NONE = "none"
    REQUEST_DELAYED = "request delayed"  # and all behind it on its connection
    REPLY_DELAYED = "reply delayed"  # likewise
    REQUEST_LOST = "request lost"  # the connection is cut, and the broker never has it
    REPLY_LOST = "reply lost"  # the connection is cut once the broker has executed it
    LATE = "late"  # the connection is cut, and the broker gets the request over another one, later
    DUPLICATED = "duplicated"  # sent on at once, and once more over another connection, later


class Decision(NamedTuple):
    """The fault of a request. `delay_s`: how long it is held, or how much later it comes, in seconds; also
    `UNTIL_RELEASED_S`."""

    fault: Fault
    delay_s: float = 0.0


class Planner(Protocol):
    def decide(self, api_key: int, version: int, number: int) -> Decision:
        """The fault for the `number`-th request (from 0) of an API in a version."""


NO_FAULT = Decision(Fault.NONE)
UNTIL_RELEASED_S: Final = math.inf
FAULTS = tuple(fault for fault in Fault if fault is not Fault.NONE)
COMES_LATER = frozenset({Fault.LATE, Fault.DUPLICATED})
OF_REPLIES = frozenset({Fault.REPLY_DELAYED, Fault.REPLY_LOST})
DELAYED_S = (0.005, 0.3)
LATER_S = (0.02, 3.0)  # behind its retry, behind the end of its transaction, in one of the next
# The first version of a request that says which transaction it belongs to (KIP-890). If an older version arrives after
# the next transaction has begun, a broker takes it for a part of that one: the first protocol cannot tell them apart,
# with Apache Kafka too. Other APIs may be late in any version: at worst, a transaction begins and times out.
NAMES_TRANSACTION_FROM: Final[dict[int, int]] = {Api.PRODUCE: 12, Api.TXN_OFFSET_COMMIT: 5, Api.END_TXN: 5}

# Of so many requests each fault hits one. Few producers are made in a campaign, and few clients speak the second
# protocol, whose requests are hit more often.
BLOCK, BLOCK_OF_SECOND, BLOCK_OF_PRODUCERS = 60, 24, 12


def block_length(api_key: int, version: int) -> int:
    if api_key == Api.INIT_PRODUCER_ID:
        return BLOCK_OF_PRODUCERS
    return BLOCK_OF_SECOND if api_key in NAMES_TRANSACTION_FROM and may_be_late(api_key, version) else BLOCK


def may_be_late(api_key: int, version: int) -> bool:
    """Whether a broker can tell a late request of that version from one of the next transaction, and must refuse it."""
    return version >= NAMES_TRANSACTION_FROM.get(api_key, 0)


@dataclass(frozen=True)
class Plan:
    """Faults as a function of the seed. `is_merciless`: requests of the first protocol come late, too."""

    seed: int
    is_merciless: bool = False

    def decide(self, api_key: int, version: int, number: int) -> Decision:
        if api_key not in set(Api):
            return NO_FAULT
        api = Api(api_key)
        fault = self._fault(api, number, block_length(api, version))
        if fault in COMES_LATER and not self.is_merciless and not may_be_late(api, version):
            return NO_FAULT
        return Decision(fault, self._delay_s(api, number, fault))

    def _fault(self, api: Api, number: int, length: int) -> Fault:
        block, place = divmod(number, length)
        choice = random.Random(f"{self.seed} {api} block {block}")
        hit = dict(zip(choice.sample(range(length), len(FAULTS)), FAULTS, strict=True))
        return hit.get(place, Fault.NONE)

    def _delay_s(self, api: Api, number: int, fault: Fault) -> float:
        """A delay in seconds, log-uniform: as often between 20 and 200 ms as between 0.2 and 2 s."""
        if fault in (Fault.NONE, Fault.REQUEST_LOST, Fault.REPLY_LOST):
            return 0.0
        least_s, most_s = LATER_S if fault in COMES_LATER else DELAYED_S
        choice = random.Random(f"{self.seed} {api} request {number}")
        return math.exp(choice.uniform(math.log(least_s), math.log(most_s)))
