"""The work of `kafkawire demo`. A broker that it starts goes on after the command ends.

The suggested commands need the broker. It runs with the defaults of `kafkawire serve`, in the present directory; the
command prints its process id and its log file. If the command fails or is interrupted, it terminates the broker.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from engine.batches.batch import Record
from kafkawire.cli.common.cluster_command import Report
from kafkawire.client.cluster import RETRY_FIRST_S, Cluster
from kafkawire.client.connection import DEFAULT_PORT, Address
from kafkawire.client.consumer import Consumer
from kafkawire.client.errors import CannotConnect, ClientError, Refusal
from kafkawire.client.partitioner import partition_of_key
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.producer import Producer
from kafkawire.client.topics import created_partitions

RECORDS: Final = 1_000
LOG_NAME: Final = "kafkawire.log"
_CUSTOMERS: Final = 10
_LOCAL: Final = ("127.0.0.1", "::1", "localhost")


class BrokerProcess(Protocol):
    """A broker process that was just started. `poll` returns its exit code, or None while it runs."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...


Start = Callable[[Address], BrokerProcess]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Counts and times of records that were sent to a topic and read back."""

    topic: str
    created: bool
    partitions: int
    produce_ms: float
    consume_ms: float


async def demonstrate(cluster: Cluster, *, topic: str, start: Start) -> Report:
    """Run the demonstration. Raises ClientError."""
    started = None if await _is_there(cluster) else start(cluster.bootstrap[0])
    try:
        if started is not None:
            await _wait_for(cluster, started)
        round_trip = await _make_round_trip(cluster, topic)
    except BaseException:
        if started is not None:
            started.terminate()
        raise
    return _report(cluster.bootstrap[0], started, round_trip)


async def _make_round_trip(cluster: Cluster, topic: str) -> RoundTrip:
    partitions, created = await created_partitions(cluster, topic)
    sent = _records(partitions)
    began = time.perf_counter()
    offsets = await _produce(cluster, sent)
    middle = time.perf_counter()
    await _read_back(cluster, sent, offsets)
    end = time.perf_counter()
    return RoundTrip(topic, created, len(partitions), 1000 * (middle - began), 1000 * (end - middle))


async def _is_there(cluster: Cluster) -> bool:
    """Whether a broker answers. Raises CannotConnect if none does and none can be started at that address."""
    try:
        await cluster.any_broker()
    except CannotConnect:
        if len(cluster.bootstrap) > 1 or cluster.bootstrap[0].host not in _LOCAL:
            raise
        return False
    return True


async def _wait_for(cluster: Cluster, started: BrokerProcess) -> None:
    while not await _is_there(cluster):
        if started.poll() is not None:
            raise ClientError(f"the broker did not start: {_last_line(Path(LOG_NAME))}")
        await trio.sleep(RETRY_FIRST_S)


def start_broker(address: Address) -> subprocess.Popen[bytes]:
    """Start a broker in a session of its own, so that it outlives the terminal's job. Raises ClientError."""
    command = [sys.executable, "-m", "kafkawire", "serve", "--set", f"listeners=PLAINTEXT://{address}"]
    if address.port != DEFAULT_PORT:  # beside another broker, which may have the HTTP port
        command += ["--set", "http.listeners="]
    try:
        log = Path(LOG_NAME).open("ab")  # noqa: SIM115 - the broker keeps it open
    except OSError as error:
        raise ClientError(f"{LOG_NAME}: {error.strerror}") from None
    with log:
        return subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1].removeprefix("Error: ") if lines else f"see {log}"


def _records(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[Record]]:
    """Orders of a few customers. All orders of a customer are in one partition."""
    now_ms = time.time_ns() // 1_000_000
    sent: dict[TopicPartition, list[Record]] = {}
    for number in range(RECORDS):
        key = b"customer-%d" % (number % _CUSTOMERS)
        record = Record(key, b'{"order":%d,"amount":%d}' % (number, number * 7 % 100), now_ms)
        sent.setdefault(partitions[partition_of_key(key, len(partitions))], []).append(record)
    return sent


async def _produce(cluster: Cluster, sent: Mapping[TopicPartition, Sequence[Record]]) -> dict[TopicPartition, int]:
    offsets = {}
    for one, offset in (await Producer(cluster).send(sent)).items():
        if isinstance(offset, Refusal):
            raise ClientError(f"{one}: {offset}")
        offsets[one] = offset
    return offsets


async def _read_back(
    cluster: Cluster, sent: Mapping[TopicPartition, Sequence[Record]], offsets: Mapping[TopicPartition, int]
) -> None:
    """Read the sent records at their offsets; records of other clients are skipped.

    Raises ClientError on a difference.
    """
    missing = {
        (one, offsets[one] + number): record for one, records in sent.items() for number, record in enumerate(records)
    }
    reader = Consumer(cluster, offsets, lambda remark: None)
    while missing:
        for batch in await reader.poll():
            for found in batch.records():
                record = missing.pop((found.partition, found.offset), None)
                if record is not None and (record.key, record.value) != (found.key, found.value):
                    raise ClientError(f"{found.partition} has another record at offset {found.offset} than was sent")


def _report(address: Address, started: BrokerProcess | None, round_trip: RoundTrip) -> Report:
    suggested = _suggested_commands(address, started, round_trip.topic)
    document: dict[str, Any] = {
        "bootstrap_server": str(address),
        "started": None if started is None else {"pid": started.pid, "log": LOG_NAME},
        "topic": round_trip.topic,
        "created": round_trip.created,
        "records": RECORDS,
        "produce_ms": round(round_trip.produce_ms, 3),
        "consume_ms": round(round_trip.consume_ms, 3),
        "next": [command for command, _ in suggested],
    }
    width = max(len(command) for command, _ in suggested)
    existence = "was created" if round_trip.created else "was there"
    lines = [
        f"A broker listens on {address}."
        if started is None
        else f"No broker listened on {address}. One was started: process {started.pid}, its log is {LOG_NAME}.",
        f"Topic {round_trip.topic} {existence}, with {round_trip.partitions} partition(s).",
        f"Produced {RECORDS} records in {round_trip.produce_ms:.0f} ms, each acknowledged by all replicas in sync.",
        f"Read them back in {round_trip.consume_ms:.0f} ms: they are equal to the records that were sent.",
        "",
        "Type next:",
        *(f"  {command:<{width}}  # {purpose}" for command, purpose in suggested),
    ]
    return Report(document, rows=[(line,) for line in lines])


def _suggested_commands(address: Address, started: BrokerProcess | None, topic: str) -> list[tuple[str, str]]:
    bootstrap_option = "" if address == ("127.0.0.1", DEFAULT_PORT) else f" -b {address}"
    commands = [
        (
            f"kafkawire consume {topic}{bootstrap_option} --from-beginning -n 3 -o json",
            "records, as programs read them",
        ),
        (f"echo 'customer-1:hello' | kafkawire produce {topic}{bootstrap_option} -K:", "one more, with a key"),
        (f"kafkawire consume {topic}{bootstrap_option} --offset -1 -e", "the last of each partition"),
        (f"kafkawire topics describe {topic}{bootstrap_option}", "the leader and the replicas of each partition"),
        ("kafkawire --help", "all commands"),
    ]
    return commands if started is None else [*commands, (f"kill {started.pid}", "stop the broker; its data stays")]
