"""Fast paths: requests in the usual shapes of clients, from frame to engine and back without the general path.

A fast path takes a frame, or leaves it to the general path (`kafkawire.requests.dispatch`). Errors and other rare
outcomes of a taken frame go to the general path, too. A fast path never differs in its effect, only in its cost: a test
compares a broker with fast paths to one without, frame by frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkawire.fast_path.fetch import FetchLane
from kafkawire.fast_path.heartbeat import HeartbeatLane
from kafkawire.fast_path.list_offsets import ListOffsetsLane
from kafkawire.fast_path.offset_commit import CommitLane
from kafkawire.fast_path.produce import ProduceLane
from kafkawire.messages.fetch import API_KEY as FETCH
from kafkawire.messages.heartbeat import API_KEY as HEARTBEAT
from kafkawire.messages.list_offsets import API_KEY as LIST_OFFSETS
from kafkawire.messages.offset_commit import API_KEY as OFFSET_COMMIT
from kafkawire.messages.produce import API_KEY as PRODUCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkawire.requests.api import Api, Lane
    from kafkawire.requests.context import BrokerInterfaces


def lanes(broker: BrokerInterfaces, table: Iterable[Api]) -> Mapping[int, Lane]:
    """The fast paths by API key."""
    by_key = {api.key: api for api in table}
    return {
        PRODUCE: ProduceLane(broker, by_key[PRODUCE]),
        FETCH: FetchLane(broker, by_key[FETCH]),
        LIST_OFFSETS: ListOffsetsLane(broker, by_key[LIST_OFFSETS]),
        OFFSET_COMMIT: CommitLane(broker, by_key[OFFSET_COMMIT]),
        HEARTBEAT: HeartbeatLane(broker, by_key[HEARTBEAT]),
    }
