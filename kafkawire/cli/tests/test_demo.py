"""`kafkawire demo` against a cluster in memory: with a broker, without one, and with one that does not start."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from engine.batches.batch import Record, build_batch
from kafkawire.cli import main
from kafkawire.cli.demo.demonstration import LOG_NAME, RECORDS, demonstrate, start_broker
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Address
from kafkawire.client.errors import CannotConnect, ClientError
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_records import FakeRecords
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.requests.errors import ErrorCode

LOCAL = Address("127.0.0.1", 9092)


@dataclass
class FakeProcess:
    pid: int = 4711
    code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.code = -signal.SIGTERM


def no_start(address: Address) -> FakeProcess:
    raise AssertionError(address)


def local_cluster() -> FakeRecords:
    fake = FakeRecords()
    fake.addresses = {1: LOCAL}
    return fake


def test_with_a_broker() -> None:
    fake = FakeRecords(2)
    fake.topics["demo"] = [FakeLog(leader=1), FakeLog(leader=2)]
    fake.store("demo", 0, build_batch([Record(value=b"another")]))
    command = ["demo", "-b", "kafka-2:9092"]
    result = CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == ["A broker listens on kafka-2:9092.", "Topic demo was there, with 2 partition(s)."]
    assert lines[2].startswith(f"Produced {RECORDS} records in ")
    assert "  kafkawire topics describe demo -b kafka-2:9092" in result.stdout
    assert sum(log.end for log in fake.topics["demo"]) == RECORDS + 1


def test_for_programs() -> None:
    fake = FakeRecords()
    command = ["demo", "-b", "kafka-1:9092", "--topic", "new", "-o", "json"]
    result = CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)
    document = json.loads(result.stdout)
    assert (document["started"], document["topic"], document["created"]) == (None, "new", True)
    assert document["next"][-1] == "kafkawire --help"


async def test_without_a_broker_one_is_started() -> None:
    fake = local_cluster()
    fake.unreachable.add(LOCAL)
    asked: list[Address] = []
    process = FakeProcess()

    def start(address: Address) -> FakeProcess:
        asked.append(address)
        fake.unreachable.clear()
        return process

    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        report = await demonstrate(cluster, topic="demo", start=start)
    assert (asked, process.code) == ([LOCAL], None)
    lines = [str(row[0]) for row in report.rows]
    assert lines[0] == (f"No broker listened on 127.0.0.1:9092. One was started: process 4711, its log is {LOG_NAME}.")
    assert lines[-1].split()[:2] == ["kill", "4711"]
    assert " -b " not in "".join(lines)


@pytest.mark.parametrize(
    ("log", "reason"),
    [("", f"see {LOG_NAME}"), ("first\nError: the directory is locked\n", "the directory is locked")],
)
async def test_a_broker_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, reason: str
) -> None:
    fake = local_cluster()
    fake.unreachable.add(LOCAL)
    monkeypatch.chdir(tmp_path)
    await trio.Path(LOG_NAME).write_text(log)
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(ClientError, match=f"the broker did not start: {reason}"):
            await demonstrate(cluster, topic="demo", start=lambda address: FakeProcess(code=1))


async def test_a_failed_demo_stops_the_broker_that_it_started() -> None:
    fake = local_cluster()
    fake.unreachable.add(LOCAL)
    fake.refuse(ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    process = FakeProcess()

    def start(_: Address) -> FakeProcess:
        fake.unreachable.clear()
        return process

    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(ClientError, match="demo-0: not authorized"):
            await demonstrate(cluster, topic="demo", start=start)
    assert process.code == -signal.SIGTERM


async def test_a_timed_out_demo_stops_the_broker_that_it_started() -> None:
    fake = local_cluster()
    fake.unreachable.add(LOCAL)
    process = FakeProcess()
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(trio.TooSlowError), trio.fail_after(60):
            await demonstrate(cluster, topic="demo", start=lambda address: process)
    assert process.code == -signal.SIGTERM


async def test_none_is_started_elsewhere() -> None:
    fake = FakeRecords()
    fake.unreachable.update(fake.bootstrap)
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(CannotConnect):
            await demonstrate(cluster, topic="demo", start=no_start)


async def test_a_refused_produce_or_fetch_raises_a_client_error() -> None:
    fake = FakeRecords()
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        fake.refuse(ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ClientError, match="demo-0: not authorized"):
            await demonstrate(cluster, topic="demo", start=no_start)
        fake.refuse(FetchRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ClientError, match="demo-0: not authorized"):
            await demonstrate(cluster, topic="demo", start=no_start)


async def test_a_broker_that_gives_out_other_records() -> None:
    class Forger(FakeRecords):
        def store(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> int:
            return super().store(topic, partition, build_batch([Record(value=b"forged")] * RECORDS))

    fake = Forger()
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        with pytest.raises(ClientError, match="demo-0 has another record at offset 0 than was sent"):
            await demonstrate(cluster, topic="demo", start=no_start)


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ClientError, match=f"{LOG_NAME}: No such file or directory"):
        start_broker(LOCAL)
