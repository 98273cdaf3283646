"""System calls of the broker, seen by strace: few syncs; record bytes are written once and sent without being read.

strace does not see copies inside the process. It shows that record bytes are neither written twice nor read back.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, fetch_requests, produce_requests
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "traced"
COUNT = 5
REQUEST_SIZE_BYTES = 128 << 10
SMALL_SIZE_BYTES = 16 << 10  # fewer bytes than this are no batch
SYNCS = "fdatasync,fsync,sync_file_range,io_submit"
UNMEASURED = ("sendmmsg", "recvmmsg")  # tell how many messages went, not how many bytes
MOVES = (
    "read,readv,pread64,preadv,preadv2,recvfrom,recvmsg,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,"
    f"sendfile,splice,copy_file_range,{','.join(UNMEASURED)}"
)
BURSTS = 40
# strace pads a thread's id to five digits.
CALL = re.compile(r"^\d+ +(\d+\.\d+) (\w+)\((?:\d+<([^>]*)>)?.* = (\d+)")
RESUMED = re.compile(r"^(\d+) +\d+\.\d+ <\.\.\. \w+ resumed>")


class Call(NamedTuple):
    at_s: float
    name: str
    path: str
    result: int
    syncs: int


class Traced(Kafkawire):
    """The broker under strace, which runs as a grandchild (-D): signals and the process id are the broker's own."""

    def __init__(self, directory: Path, calls: str) -> None:
        super().__init__(directory)
        self._strace = need_command("strace", "make system-deps")
        self._calls = calls
        self._output = directory / "strace.out"

    def command(self) -> list[str]:
        options = ["-D", "-f", "--seccomp-bpf", "-ttt", "-y", "-s", "16", "-e", f"trace={self._calls}"]
        return [self._strace, *options, "-o", str(self._output), *super().command()]

    def calls(self) -> list[Call]:
        """The calls that succeeded. Only complete once the broker has stopped."""
        return list(filter(None, map(_parsed, _joined(self._output.read_text().splitlines()))))


def _joined(lines: list[str]) -> Iterator[str]:
    """The lines of strace, with interrupted calls put together: such a call is written in two parts."""
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.partition(" ")[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif resumed := RESUMED.match(line):
            yield begun.pop(thread) + line[resumed.end() :]
        else:
            yield line


def _parsed(line: str) -> Call | None:
    match = CALL.match(line)
    if match is None:
        return None
    at_s, name, path, result = match.groups()
    by_aio = line.count("IOCB_CMD_FDSYNC") if name == "io_submit" else 0
    return Call(float(at_s), name, path or "", int(result), by_aio + (name in ("fdatasync", "fsync")))


def large(calls: list[Call], *names: str) -> list[Call]:
    """The calls of these names that may have moved a batch, by their size."""
    return [call for call in calls if call.name in names and call.result >= SMALL_SIZE_BYTES]


def produce(broker: Kafkawire, count: int) -> int:
    """Produce over one connection with all requests in flight; return the number of acknowledged bytes of batches."""
    batch = batch_of(REQUEST_SIZE_BYTES)
    run_load(broker.port, [produce_requests(TOPIC, [0], batch, count)], count)
    return count * len(batch)


def test_requests_in_flight_share_a_sync(tmp_path: Path) -> None:
    """Requests in flight share syncs. The number of requests for each depends on timing: some bursts need no more than
    two."""
    bursts = []
    with Traced(tmp_path / "broker", SYNCS) as broker:
        create_topic(broker, TOPIC)
        produce(broker, COUNT)  # files exist and are synced for the first time
        for _ in range(BURSTS):
            begun_s = time.time()
            produce(broker, COUNT)
            bursts.append((begun_s, time.time()))
    calls = broker.calls()
    syncs = [sum(call.syncs for call in calls if begun_s <= call.at_s <= end_s) for begun_s, end_s in bursts]
    assert 1 <= min(syncs) <= 2, syncs
    assert sum(syncs) < COUNT * BURSTS, syncs


def test_record_bytes_are_written_by_one_call_and_leave_by_sendfile(tmp_path: Path) -> None:
    with Traced(tmp_path / "broker", MOVES) as broker:
        create_topic(broker, TOPIC)
        stored = produce(broker, COUNT)
        run_load(broker.port, [fetch_requests(TOPIC, [0], 1, stored)], 1)
    calls = broker.calls()
    written = large(calls, "write", "writev", "pwrite64", "pwritev", "pwritev2")
    segment = [call.result for call in written if f"/{TOPIC}-0/" in call.path]
    assert sum(segment) == stored, calls
    assert len(segment) <= COUNT, "a batch was written in parts"
    # A small commit batch is written a second time, from the receive buffer: to the journal.
    assert all("/journal/" in call.path or f"/{TOPIC}-0/" in call.path for call in written), written
    assert sum(call.result for call in calls if call.name == "sendfile") == stored
    assert not large(calls, "sendto", "sendmsg", "splice", "copy_file_range")
    assert not [call for call in calls if call.name in UNMEASURED]
    read = large(calls, "read", "readv", "pread64", "preadv", "preadv2")
    assert not [call for call in read if "/data/" in call.path], read
