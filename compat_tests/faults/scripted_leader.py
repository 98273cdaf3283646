"""A broker that leads a topic of one partition and answers the first batches by a script, even if the script is wrong.

It is made to deceive producers: it says of its log what no broker should say, and the test knows the real log.
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from compat_tests.faults.history import Found, Place
from compat_tests.harness.kio_codec import API_KEYS, decode_request, encode_response
from engine.batches.batch import HEADER_SIZE_BYTES, parse_header, walk_records

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC: Final = "scripted"
# As much as librdkafka needs to be idempotent; Fetch is never asked, but speaks for the format of batches.
SERVED: Final = {
    "produce": (3, 7),
    "fetch": (4, 4),
    "metadata": (0, 4),
    "api_versions": (0, 3),
    "init_producer_id": (0, 1),
}


class Verdict(NamedTuple):
    """The number of times that a batch is appended, and the error code that its producer gets."""

    copies: int
    error_code: int = 0


class ScriptedLeader:
    """A broker that answers the first batches together, once all batches of the script have come. Later batches are
    appended."""

    name = "scripted"

    def __init__(self, script: Sequence[Verdict]) -> None:
        self.log: list[Found] = []
        self._script = deque(script)
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), partial(_Connection, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, frame: bytes) -> tuple[bytes, bool]:
        """The answer to a request, and whether it has to wait for other batches of the script."""
        api, version, fields = decode_request(frame)
        is_scripted = api == "produce" and bool(self._script)
        answer = getattr(self, f"_{api}")(fields)
        reply = encode_response(api, version, answer, int.from_bytes(frame[4:8], "big"))
        return reply, is_scripted and bool(self._script)

    def _api_versions(self, _: object) -> dict[str, Any]:
        rows = [
            {"api_key": API_KEYS[name], "min_version": first, "max_version": last}
            for name, (first, last) in SERVED.items()
        ]
        return {"api_keys": rows}

    def _metadata(self, _: object) -> dict[str, Any]:
        partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
            "controller_id": 1,
            "topics": [{"name": TOPIC, "partitions": [partition]}],
        }

    def _init_producer_id(self, _: object) -> dict[str, Any]:
        return {"producer_id": 7, "producer_epoch": 0}

    def _produce(self, fields: dict[str, Any]) -> dict[str, Any]:
        [topic] = fields["topic_data"]
        [partition] = topic["partition_data"]
        verdict = self._script.popleft() if self._script else Verdict(1)
        offset = len(self.log)
        for _ in range(verdict.copies):
            self.log += [
                Found(Place(0, len(self.log) + number), value)
                for number, value in enumerate(values(partition["records"]))
            ]
        told = {"index": 0, "error_code": verdict.error_code, "base_offset": -1 if verdict.error_code else offset}
        return {"responses": [{"name": TOPIC, "partition_responses": [told]}]}


class _Connection(socketserver.StreamRequestHandler):
    def __init__(self, leader: ScriptedLeader, *arguments: Any) -> None:
        self._leader = leader
        super().__init__(*arguments)

    def handle(self) -> None:
        held = b""
        while len(size := self.rfile.read(4)) == 4:
            reply, is_held = self._leader.answer(self.rfile.read(int.from_bytes(size, "big")))
            held += struct.pack(">i", len(reply)) + reply
            if not is_held:
                self.wfile.write(held)
                held = b""


def values(batch: bytes) -> list[str]:
    """The record values of an uncompressed batch."""
    records = walk_records(parse_header(batch), batch[HEADER_SIZE_BYTES:])
    return [bytes(record.value or b"").decode() for record in records]
