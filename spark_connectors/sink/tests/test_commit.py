"""Staged batches are written once by requests to a broker, then files are deleted; refusals name a remedy."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pytest

from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.wire.message import Message
from spark_connectors.sink.commit import commit
from spark_connectors.sink.errors import CommitRefused, Fenced, StagingLost
from spark_connectors.sink.options import SinkOptions, sink_options
from spark_connectors.sink.relay import Begin, RelayOutcome
from spark_connectors.sink.staging import INLINE_MAX_BYTES, Staged, Task
from spark_connectors.sink.task import stage
from spark_connectors.sink.tests.world import World
from spark_connectors.wire import BrokerError, ErrorCode, GaveUp
from spark_connectors.wire.tests.fakes import FakeBroker


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "one", "topic": "t", "stagingLocation": str(tmp_path)})


def staged(options: SinkOptions, by: Task, *values: bytes) -> Staged:
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    return stage(iter([batch]), by, options, lambda _: 3, lambda: 0)


def tasks(options: SinkOptions, batch_id: int | None, *, of_bytes: int = 4, query: str = "q") -> list[Staged]:
    """Staged rows of two tasks, with one row each."""
    return [
        staged(options, Task(query, batch_id, task, 0), (b"%d/%d" % (batch_id or 0, task)).ljust(of_bytes))
        for task in range(2)
    ]


def files(options: SinkOptions) -> list[Path]:
    return [path for path in Path(options.staging).rglob("*") if path.is_file()]


def test_micro_batches_and_their_record(world: World, options: SinkOptions) -> None:
    for batch_id in range(3):
        assert commit(tasks(options, batch_id), options, world.cluster()) is RelayOutcome.WRITTEN
        assert commit(tasks(options, batch_id), options, world.cluster()) is RelayOutcome.WRITTEN_BEFORE
    assert sorted(map(str, world.values())) == sorted(f"b'{batch}/{task} '" for batch in range(3) for task in range(2))
    assert world.model.records == {"kafkawire-spark-q": 3}


def test_a_job_has_no_record(world: World, options: SinkOptions) -> None:
    assert commit(tasks(options, None), options, world.cluster()) is RelayOutcome.WRITTEN
    assert len(world.values()) == 2
    assert world.model.records == {}


def test_job_without_rows_sends_no_request(world: World, options: SinkOptions) -> None:
    nothing = [staged(options, Task("q", None, 0, 0))]
    assert commit(nothing, options, world.cluster()) is RelayOutcome.NOTHING_TO_WRITE
    assert world.broker.requests == []


def test_an_answer_that_is_lost_is_asked_for_again(world: World, options: SinkOptions) -> None:
    """An executed request is not executed twice, whichever answer is lost."""
    commit(tasks(options, 0), options, world.cluster())
    count = len(world.broker.requests)
    for lost in range(1, count):
        world = World()
        world.broker.next.extend([None] * lost + [FakeBroker.BREAK_AFTER])
        assert commit(tasks(options, 0), options, world.cluster()) is RelayOutcome.WRITTEN
        assert len(world.values()) == 2
        assert world.model.records == {"kafkawire-spark-q": 1}


def test_abort_after_unknown_commit_undoes_nothing(world: World, options: SinkOptions) -> None:
    """Trap: the commit succeeded without an answer. The next attempt finds out."""
    answer = world.broker.handlers[EndTxnRequest]

    def done_and_gone(request: EndTxnRequest) -> Message:
        answer(request)
        world.broker.is_down = True
        raise ConnectionResetError

    world.broker.handlers[EndTxnRequest] = done_and_gone
    with pytest.raises(GaveUp):
        commit(tasks(options, 0), options, world.cluster())
    world.broker.is_down = False
    assert commit(tasks(options, 0), options, world.cluster()) is RelayOutcome.WRITTEN_BEFORE
    assert len(world.values()) == 2


def test_overtaken_attempt_is_fenced(world: World, options: SinkOptions) -> None:
    answer = world.broker.handlers[ProduceRequest]

    def overtaken(request: ProduceRequest) -> Message:
        world.model.perform("kafkawire-spark-q", Begin())
        return answer(request)

    world.broker.handlers[ProduceRequest] = overtaken
    with pytest.raises(Fenced, match="this attempt to write for kafkawire-spark-q is over"):
        commit(tasks(options, 0), options, world.cluster())
    assert world.values() == []


def test_commit_waits_for_a_topic_that_its_coordinator_does_not_know_yet(world: World, options: SinkOptions) -> None:
    """The other partitions of the request are not attempted then, and that is no final answer."""
    answer = world.broker.handlers[AddPartitionsToTxnRequest]

    def unknown(request: AddPartitionsToTxnRequest) -> Message:
        world.broker.handlers[AddPartitionsToTxnRequest] = answer
        (topic,) = request.v3_and_below_topics
        assert len(topic.partitions) > 1
        rows = [
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            for number, code in zip_longest(
                topic.partitions,
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                fillvalue=ErrorCode.OPERATION_NOT_ATTEMPTED,
            )
        ]
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)]
        )

    world.broker.handlers[AddPartitionsToTxnRequest] = unknown
    assert commit(tasks(options, 0), options, world.cluster()) is RelayOutcome.WRITTEN
    assert len(world.values()) == 2


def test_batch_too_large_for_its_topic_raises_with_a_remedy(world: World, options: SinkOptions) -> None:
    world.produce_code = ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(BrokerError, match=r"max.message.bytes is below the size that kafka.batch.size allows a batch"):
        commit(tasks(options, 0), options, world.cluster())


def test_error_message_of_the_broker_is_raised(world: World, options: SinkOptions) -> None:
    world.produce_code, world.produce_message = ErrorCode.INVALID_RECORD, "it has no key"
    with pytest.raises(BrokerError, match="Produce of t-0: INVALID_RECORD: it has no key"):
        commit(tasks(options, 0), options, world.cluster())


def test_a_record_that_is_missing(world: World, options: SinkOptions) -> None:
    with pytest.raises(CommitRefused, match="onMissingRecord=accept"):
        commit(tasks(options, 3), options, world.cluster())
    accepting = replace(options, is_missing_accepted=True)
    assert commit(tasks(options, 3), accepting, world.cluster()) is RelayOutcome.WRITTEN


def test_a_copy_of_a_checkpoint_is_the_same_query(world: World, options: SinkOptions) -> None:
    """Another topic does not make it another query."""
    assert commit(tasks(options, 0), options, world.cluster()) is RelayOutcome.WRITTEN
    elsewhere = replace(options, topic="u")
    assert commit(tasks(elsewhere, 0), elsewhere, world.cluster()) is RelayOutcome.WRITTEN_BEFORE


def test_how_long_a_transaction_may_take(world: World, options: SinkOptions) -> None:
    commit(tasks(options, 0), replace(options, transaction_timeout_ms=1234), world.cluster())
    assert [one.transaction_timeout_ms for one in world.broker.asked(InitProducerIdRequest)] == [1234]


# --- files


@pytest.mark.parametrize("batch_id", [0, None])
def test_files_go_when_they_are_written(world: World, options: SinkOptions, batch_id: int | None) -> None:
    large = tasks(options, batch_id, of_bytes=INLINE_MAX_BYTES - 100)
    small = tasks(options, batch_id, of_bytes=INLINE_MAX_BYTES // 2)
    both = [*large, *small]
    assert len(files(options)) == sum(one.data is None for one in both)
    other = tasks(options, 1, query="other", of_bytes=INLINE_MAX_BYTES - 100)
    commit(both, options, world.cluster())
    assert {str(path) for path in files(options)} == {one.path for one in other if one.data is None}


def test_a_file_that_is_gone_is_an_error(world: World, options: SinkOptions) -> None:
    using = replace(options, record_max_bytes=4 * INLINE_MAX_BYTES)
    large = tasks(using, 0, of_bytes=2 * INLINE_MAX_BYTES)
    for path in files(options):
        path.unlink()
    with pytest.raises(StagingLost, match="stagingLocation must be a place that the driver and all executors share"):
        commit(large, options, world.cluster())
    assert world.values() == []


def test_old_files_are_looked_for_now_and_then(world: World, options: SinkOptions) -> None:
    using = replace(options, record_max_bytes=4 * INLINE_MAX_BYTES, is_missing_accepted=True)
    tasks(using, 1, query="forgotten", of_bytes=2 * INLINE_MAX_BYTES)
    for path in [*files(options), *(path.parent for path in files(options))]:
        os.utime(path, (0, 0))
    os.utime(Path(options.staging) / "kafkawire-spark" / "forgotten", (0, 0))
    commit(tasks(using, 99), using, world.cluster())
    assert files(options)
    commit(tasks(using, 100), using, world.cluster())
    assert not files(options)


def test_files_that_cannot_be_deleted_are_no_failure(
    world: World, options: SinkOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """A file is in place of the directory, so it cannot be listed."""
    (Path(options.staging) / "kafkawire-spark").touch()
    assert commit(tasks(options, 0), options, world.cluster()) is RelayOutcome.WRITTEN
    assert "are not deleted" in caplog.text
