"""Questions to a broker of a cluster: the leader of a partition, the coordinator of a transactional id or a group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP, TRANSACTION = 0, 1  # the kinds of keys that have a coordinator
KNOWN_WITHIN_S: Final = 15.0
LOOK_EVERY_S: Final = 0.05
NOBODY: Final = -1


def leader_id(port: int, topic: str, partition: int = 0) -> int:
    """The id of a partition's leader, once the broker at `port` knows it."""
    return _once_known(lambda: leaders(port, topic).get(partition, NOBODY), f"no leader of {topic}-{partition}")


class Led(NamedTuple):
    """A partition: its leader, the port of the leader (0 if unknown), and the ISR."""

    leader: int
    port: int
    in_sync: frozenset[int]


def partitions(port: int, topic: str) -> dict[int, Led]:
    """The partitions of a topic by number; none if the broker at `port` does not know the topic."""
    answer = ask(port, "metadata", 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    ports = {row["node_id"]: row["port"] for row in answer["brokers"]}
    [found] = answer["topics"]
    return {
        row["partition_index"]: Led(row["leader_id"], ports.get(row["leader_id"], 0), frozenset(row["isr_nodes"]))
        for row in found["partitions"]
    }


def leaders(port: int, topic: str) -> dict[int, int]:
    """The leaders of a topic's partitions; see `partitions`."""
    return {number: one.leader for number, one in partitions(port, topic).items()}


def coordinator_id(port: int, key: str, kind: int = TRANSACTION) -> int:
    """The id of the coordinator of a transactional id or a group, once the broker at `port` knows it."""
    return _once_known(lambda: int(coordinator(port, key, kind)["node_id"]), f"no coordinator of {key}")


def coordinator(port: int, key: str, kind: int) -> dict[str, Any]:
    """The answer of the broker at `port` to FindCoordinator."""
    return ask(port, "find_coordinator", 3, {"key": key, "key_type": kind})


def ask(port: int, api: str, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the broker at `port` and return the decoded answer."""
    with WireConnection(port) as connection:
        connection.send_frame(encode_request(api, version, fields))
        reply = connection.receive_frame()
    assert reply is not None, "the broker closed the connection"
    return decode_response(api, version, reply)


def _once_known(told: Callable[[], int], otherwise: str) -> int:
    deadline_s = time.monotonic() + KNOWN_WITHIN_S
    while (broker_id := told()) == NOBODY:
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(LOOK_EVERY_S)
    return broker_id
