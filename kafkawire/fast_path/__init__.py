"""Fast paths: requests in the usual shapes of clients, from frame to engine and back without the general path.

A fast path takes a frame, or leaves it to the general path (`kafkawire.requests.dispatch`). Errors and other rare
outcomes of a taken frame go to the general path, too. A fast path never differs in its effect, only in its cost: a test
compares a broker with fast paths to one without, frame by frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkawire.fast_path.fetch import FetchFastPath
from kafkawire.fast_path.list_offsets import ListOffsetsFastPath
from kafkawire.fast_path.offset_commit import OffsetCommitFastPath
from kafkawire.fast_path.produce import ProduceFastPath
from kafkawire.messages.fetch import API_KEY as FETCH
from kafkawire.messages.list_offsets import API_KEY as LIST_OFFSETS
from kafkawire.messages.offset_commit import API_KEY as OFFSET_COMMIT
from kafkawire.messages.produce import API_KEY as PRODUCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkawire.requests.api import Api, FastPath
    from kafkawire.requests.context import BrokerInterfaces


def fast_paths(broker: BrokerInterfaces, table: Iterable[Api]) -> Mapping[int, FastPath]:
    """The fast paths by API key."""
    by_key = {api.key: api for api in table}
    return {
        PRODUCE: ProduceFastPath(broker, by_key[PRODUCE]),
        FETCH: FetchFastPath(broker, by_key[FETCH]),
        LIST_OFFSETS: ListOffsetsFastPath(broker, by_key[LIST_OFFSETS]),
        OFFSET_COMMIT: OffsetCommitFastPath(broker, by_key[OFFSET_COMMIT]),
    }
