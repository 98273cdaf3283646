"""Members of a group on bare connections, and the requests of commits: encoded once, answers decoded in part.

JoinGroup 5, SyncGroup 3, OffsetCommit 7 and OffsetFetch 5, the last versions that are not flexible.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from benchmarks.lib.background import keep_pace
from benchmarks.lib.wire_requests import batch_of, checker, create_topic_frame, produce_requests, sized
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed, Requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lib.background import BackgroundWork

JOIN_VERSION, SYNC_VERSION, COMMIT_VERSION, FETCH_VERSION = 5, 3, 7, 5
MEMBER_ID_REQUIRED, COORDINATOR_NOT_AVAILABLE = 79, 15
SESSION_TIMEOUT_MS = 60_000
PATIENCE_S = 60.0
CHUNK = 100
RECORD_SIZE_BYTES = 90  # of an offset in the log, about
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4load"  # ConsumerProtocolSubscription 0, user data follows


class Member:
    """A member on a connection of its own."""

    def __init__(self, port: int, group: str) -> None:
        self._connection = WireConnection(port, PATIENCE_S)
        self._group = group
        self._joins = 0
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []  # the members of the group, on its leader

    def close(self) -> None:
        self._connection.close()

    def send_join(self) -> None:
        """Send a JoinGroup with new metadata each time, so that a settled group rebalances for each member."""
        self._joins += 1
        metadata = SUBSCRIPTION + struct.pack(">ii", 4, self._joins)
        fields = {
            "group_id": self._group,
            "session_timeout": SESSION_TIMEOUT_MS,
            "rebalance_timeout": SESSION_TIMEOUT_MS,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        self._connection.send_frame(encode_request("join_group", JOIN_VERSION, fields))

    def take_joined(self) -> None:
        answer = decode_response("join_group", JOIN_VERSION, self._receive())
        self.member_id = answer["member_id"]
        if answer["error_code"] == MEMBER_ID_REQUIRED:
            self.send_join()
            self.take_joined()
            return
        _check(answer["error_code"])
        self.generation = answer["generation_id"]
        self.others = [one["member_id"] for one in answer["members"]]

    def introduce(self) -> None:
        """Join with the id that the coordinator gives to the member."""
        self.send_join()
        answer = decode_response("join_group", JOIN_VERSION, self._receive())
        if answer["error_code"] != MEMBER_ID_REQUIRED:
            raise LoadFailed(f"the broker answered with error {answer['error_code']}")
        self.member_id = answer["member_id"]

    def send_sync(self) -> None:
        fields = {
            "group_id": self._group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
            "assignments": [{"member_id": one, "assignment": bytes(64)} for one in self.others],
        }
        self._connection.send_frame(encode_request("sync_group", SYNC_VERSION, fields))

    def take_synced(self) -> None:
        _check(decode_response("sync_group", SYNC_VERSION, self._receive())["error_code"])

    def commit(self, topic: str, partitions: Sequence[int]) -> None:
        frame = _commit(self._group, topic, partitions, self.generation, self.member_id)
        self._connection.send_frame(frame)
        _check_committed(decode_response("offset_commit", COMMIT_VERSION, self._receive()))

    def _receive(self) -> bytes:
        frame = self._connection.receive_frame()
        if frame is None:
            raise LoadFailed("the broker closed a connection")
        return frame


def rebalance_s(members: Sequence[Member]) -> float:
    """Seconds from the first JoinGroup until all members have their assignments."""
    begun_s = time.perf_counter()
    for member in members:
        member.send_join()
    for member in members:
        member.take_joined()
    for member in members:
        member.send_sync()
    for member in members:
        member.take_synced()
    return time.perf_counter() - begun_s


def wait_for_coordinator(port: int, group: str) -> None:
    """Wait for the coordinator: the first look-up creates the topic of offsets; its partitions take a while."""
    deadline_s = time.monotonic() + PATIENCE_S
    with WireConnection(port) as connection:
        while time.monotonic() < deadline_s:
            connection.send_frame(encode_request("find_coordinator", 1, {"key": group, "key_type": 0}))
            found = _answer("find_coordinator", 1, connection)
            connection.send_frame(encode_request("offset_fetch", FETCH_VERSION, {"group_id": group, "topics": None}))
            fetched = _answer("offset_fetch", FETCH_VERSION, connection)
            if not found["error_code"] and not fetched["error_code"]:
                return
            time.sleep(0.05)
    raise LoadFailed(f"group {group} has no coordinator")


def commit_requests(group: str, topic: str, partitions: Sequence[int], count: int) -> Requests:
    """Commits of one offset each, to the partitions in turn, of a group without members."""
    return _commits(topic, [_commit(group, topic, [partition]) for partition in partitions], count)


def _commits(topic: str, frames: Sequence[bytes], count: int) -> Requests:
    # correlation id, throttle, one topic, its name, the partitions, the first one's index
    return Requests([sized(frame) for frame in frames], count, checker(4 + 4 + 4 + 2 + len(topic) + 4 + 4))


def commit_many(port: int, group: str, topic: str, partitions: Sequence[int]) -> None:
    with WireConnection(port) as connection:
        for first in range(0, len(partitions), CHUNK):
            connection.send_frame(_commit(group, topic, partitions[first : first + CHUNK]))
            _check_committed(_answer("offset_commit", COMMIT_VERSION, connection))


def commit_on(background: BackgroundWork, port: int, group: str, topic: str, offsets_per_s: int) -> None:
    """Commit `CHUNK` offsets a request, until the measurement is over."""
    requests = _commits(topic, [_commit(group, topic, range(CHUNK))], 1)
    keep_pace(background, port, requests, offsets_per_s / CHUNK)


def produce_on(background: BackgroundWork, port: int, topic: str, offsets_per_s: int) -> None:
    """Produce as many batches as the commits would write, of their size, without the groups."""
    requests = produce_requests(topic, [0], batch_of(CHUNK * RECORD_SIZE_BYTES), 1)
    keep_pace(background, port, requests, offsets_per_s / CHUNK)


def creation_requests(prefix: str, count: int) -> Requests:
    """CreateTopics, one topic each."""
    frames = [sized(create_topic_frame(f"{prefix}-{number}")) for number in range(count)]
    # correlation id, throttle, one topic, its name
    return Requests(frames, count, checker(4 + 4 + 4 + 2 + len(f"{prefix}-0")))


def fetch_requests(group: str, topic: str, partitions: Sequence[int], count: int) -> Requests:
    """OffsetFetches of all of these partitions."""
    fields = {"group_id": group, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}
    frame = sized(encode_request("offset_fetch", FETCH_VERSION, fields))
    # correlation id, throttle, one topic, its name, partitions, index, offset, epoch, metadata
    return Requests([frame], count, checker(4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 8 + 4 + 2))


def _commit(group: str, topic: str, partitions: Sequence[int], generation: int = -1, member_id: str = "") -> bytes:
    """An OffsetCommit of a member, or of no member."""
    rows = [
        {"partition_index": each, "committed_offset": 1_000, "committed_leader_epoch": -1, "committed_metadata": ""}
        for each in partitions
    ]
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": rows}],
    }
    return encode_request("offset_commit", COMMIT_VERSION, fields)


def _answer(api: str, version: int, connection: WireConnection) -> dict[str, Any]:
    frame = connection.receive_frame()
    if frame is None:
        raise LoadFailed("the broker closed a connection")
    return decode_response(api, version, frame)


def _check_committed(answer: dict[str, Any]) -> None:
    for one in answer["topics"][0]["partitions"]:
        _check(one["error_code"])


def _check(error_code: int) -> None:
    if error_code:
        raise LoadFailed(f"the broker answered with error {error_code}")
