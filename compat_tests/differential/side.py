"""A scenario's access to one of the two brokers: it sends requests, and every reply goes into the transcript.

A scenario must not depend on which broker it talks to. Topic ids are the broker's own, so they are asked for by name
and shown by name in the transcript.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compat_tests.differential.normalise import Normaliser
from compat_tests.harness.kio_codec import Fields, decode_response, encode_request
from compat_tests.harness.wire import WireConnection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from compat_tests.harness.broker import Broker

CLOSED = {"connection": "closed"}
SILENT = {"connection": "open, no reply"}
READY_TIMEOUT_S = 20.0
REPLY_TIMEOUT_S = 4.0
ZERO_ID = bytes(16)
CONCURRENT_TRANSACTIONS = 51


def has_code(reply: object, code: int) -> bool:
    """Whether the reply has that error code anywhere."""
    if isinstance(reply, dict):
        return any(
            value == code if name.endswith("error_code") else has_code(value, code) for name, value in reply.items()
        )
    return isinstance(reply, (list, tuple)) and any(has_code(each, code) for each in reply)


class Side:
    """Runs scenarios against one broker, each on connections of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transcript: list[tuple[str, Any]] = []
        self._connection: WireConnection | None = None
        self._others: dict[str, WireConnection] = {}
        self._ids: dict[str, bytes] = {}
        self._normalise = Normaliser(self._ids, broker.port)

    def begin(self) -> None:
        self.transcript = []
        self._normalise.begin()
        self.reconnect()

    def end(self) -> None:
        for connection in (self._connection, *self._others.values()):
            if connection is not None:
                connection.close()
        self._connection = None
        self._others.clear()

    def reconnect(self) -> None:
        """Goes on with a new connection: the broker closed the old one, or has state on it."""
        if self._connection is not None:
            self._connection.close()
        self._connection = WireConnection(self.broker.port, REPLY_TIMEOUT_S)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Send the requests inside over another connection, known by its name until the scenario ends."""
        before = self._connection
        self._connection = self._others.get(name)
        if self._connection is None:
            self.reconnect()
        try:
            yield
        finally:
            self._others[name] = self.connection
            self._connection = before

    @property
    def connection(self) -> WireConnection:
        assert self._connection is not None
        return self._connection

    def ask(self, api: str, version: int, fields: Fields, *, label: str = "") -> dict[str, Any]:
        """Send a request and note the reply, or that the connection was closed. Returns the reply as it came."""
        frame = encode_request(api, version, fields)
        return self.ask_bytes(api, version, frame, label=label)

    def ask_until_over(self, api: str, version: int, fields: Fields, *, label: str = "") -> dict[str, Any]:
        """Call `ask` again while the previous transaction is not over, as clients do: Apache Kafka says so at once,
        kafkawire waits for a while."""
        return self.ask_while(CONCURRENT_TRANSACTIONS, api, version, fields, label=label)

    def ask_while(self, code: int, api: str, version: int, fields: Fields, *, label: str = "") -> dict[str, Any]:
        """Call `ask` again while the reply has this error code, and return the last reply. Gives up after
        `READY_TIMEOUT_S`."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            found = self.ask(api, version, fields, label=label)
            if not has_code(found, code) or time.monotonic() > deadline:
                return found
            self.transcript.pop()
            time.sleep(0.01)

    def ask_bytes(self, api: str, version: int, frame: bytes, *, label: str = "") -> dict[str, Any]:
        """Send a request frame made by hand and note the reply, read as a reply of `api` and `version`."""
        self.connection.send_frame(frame)
        return self.read(api, version, label=label)

    def read(self, api: str, version: int, *, label: str = "") -> dict[str, Any]:
        """Notes the next reply on the connection."""
        name = label or api
        try:
            reply = self.connection.receive_frame()
        except TimeoutError:
            return self._lost(name, SILENT)
        if reply is None:
            return self._lost(name, CLOSED)
        found = decode_response(api, version, reply)
        self.transcript.append((name, self._normalise.reply(api, found)))
        return found

    def note(self, label: str, found: object) -> None:
        """Note a value in the transcript that is no reply, or has a form of its own, and must be the same too."""
        self.transcript.append((label, found))

    def _lost(self, name: str, outcome: dict[str, str]) -> dict[str, Any]:
        self.transcript.append((name, outcome))
        self.reconnect()
        return {}

    def send(self, api: str, version: int, fields: Fields, correlation_id: int = 1) -> None:
        """Sends a request whose reply is read later, or that gets none."""
        self.connection.send_frame(encode_request(api, version, fields, correlation_id))

    def still_open(self, label: str = "afterwards") -> None:
        """Notes whether the connection still answers."""
        self.ask("api_versions", 0, {}, label=label)

    # Preparations for scenarios; not part of the transcript.

    def quiet(self, api: str, version: int, fields: Fields) -> dict[str, Any]:
        """A request on a connection of its own that leaves no trace."""
        with WireConnection(self.broker.port) as connection:
            connection.send_frame(encode_request(api, version, fields))
            reply = connection.receive_frame()
        assert reply is not None, f"{self.broker.name} closed the connection at {api} {version}"
        return decode_response(api, version, reply)

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> bytes:
        """Create a topic, unless it exists, and wait until it can be used. Returns its id."""
        if name in self._ids:
            return self._ids[name]
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        reply = self.quiet("create_topics", 7, {"topics": [topic], "timeout": 10_000})
        (created,) = reply["topics"]
        assert created["error_code"] in (0, 36), f"{self.broker.name}: {created}"
        self._wait_until_usable(name, partitions)
        return self._ids[name]

    def _wait_until_usable(self, name: str, partitions: int) -> None:
        """Apache Kafka answers CreateTopics before the partition can be written to."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        rows = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        fields = {"replica_id": -1, "topics": [{"name": name, "partitions": rows}]}
        while any(row["error_code"] for row in self.quiet("list_offsets", 1, fields)["topics"][0]["partitions"]):
            assert time.monotonic() < deadline, f"{self.broker.name}: {name} does not become usable"
            time.sleep(0.01)
        self._ids[name] = self.look_up(name)

    def look_up(self, name: str) -> bytes:
        """The id of a topic that exists."""
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        (found,) = self.quiet("metadata", 12, fields)["topics"]
        assert found["error_code"] == 0, f"{self.broker.name}: {found}"
        topic_id: bytes = found["topic_id"]
        return topic_id

    @property
    def topics(self) -> AbstractSet[str]:
        """The topics made so far, by any scenario."""
        return self._ids.keys()

    def topic_id(self, name: str) -> bytes:
        """The id of a topic this scenario created or looked up."""
        if name not in self._ids:
            self._ids[name] = self.look_up(name)
        return self._ids[name]

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until clients no longer see it."""
        self.quiet("delete_topics", 5, {"topic_names": [name], "timeout": 10_000})
        self.wait_until_gone(name)

    def forget(self, name: str) -> None:
        """Forget the id of a topic that was deleted: a topic that is created again has another id."""
        del self._ids[name]

    def wait_until_gone(self, name: str) -> None:
        """Wait until the broker no longer knows the topic: Apache Kafka's controller answers earlier."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        while self.quiet("metadata", 12, fields)["topics"][0]["error_code"] == 0:
            assert time.monotonic() < deadline, f"{self.broker.name}: {name} does not go"
            time.sleep(0.01)

    def produce(self, topic: str, records: bytes, partition: int = 0) -> None:
        """Produce records, and check that they are acknowledged."""
        partition_fields = {"index": partition, "records": records}
        fields = {
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": [partition_fields]}],
        }
        reply = self.quiet("produce", 9, fields)
        (row,) = reply["responses"][0]["partition_responses"]
        assert row["error_code"] == 0, f"{self.broker.name}: {row}"
