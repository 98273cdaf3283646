"""Each row is written once, however many processes try to write a micro-batch, and wherever each of them stops.

A process is a state machine whose steps a model of a cluster executes. Between any two steps it may die, or other
processes may run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.records.batches import batches_of
from spark_connectors.records.encode import Rows, encode
from spark_connectors.sink.errors import CommitRefused, StagingLost
from spark_connectors.sink.relay import (
    APPEND_MAX_BYTES,
    AddPartitions,
    AddRecord,
    Append,
    Begin,
    Commit,
    Frame,
    Job,
    Producer,
    RelayOutcome,
    Step,
    relay,
    windows,
)
from spark_connectors.sink.tests.model import Model
from spark_connectors.wire import BrokerError, TopicPartition

NAME = "query"
PRODUCER = Producer(5, 6)
PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def frame(place: TopicPartition, *values: bytes) -> Frame:
    column = pa.array(values, pa.binary())
    nulls = pa.nulls(len(values), pa.binary())
    rows = Rows(nulls, column, pa.nulls(len(values), HEADERS), np.zeros(len(values), np.int64))
    (one,) = encode(rows)
    return Frame(place, one.batch, one.records)


# Frames of each micro-batch. The second one needs two steps to append them.
MICRO_BATCHES: dict[int, list[Frame]] = {
    0: [frame(PLACES[0], b"0a", b"0b"), frame(PLACES[1], b"0c")],
    1: [frame(PLACES[0], b"1a"), frame(PLACES[1], b"1b", b"1c"), frame(PLACES[0], b"1d")],
    2: [frame(PLACES[1], b"2a")],
}
EXPECTED: list[list[bytes]] = [[b"0a", b"0b", b"1a", b"1d"], [b"0c", b"1b", b"1c", b"2a"]]


class Process:
    """A process that commits a micro-batch, step by step. `sends_twice`: each request reaches the cluster twice."""

    def __init__(self, model: Model, batch_id: int, *, sends_twice: bool = False) -> None:
        self._model = model
        self._sends_twice = sends_twice
        frames = MICRO_BATCHES[batch_id]
        job = Job(NAME, batch_id, tuple(dict.fromkeys(one.place for one in frames)))
        self._machine = relay(job, frames)
        self._answer: Any = None
        self.outcome: RelayOutcome | None = None
        self.is_fenced = False
        self.is_refused = False

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or self.is_fenced or self.is_refused

    def step(self) -> None:
        """Execute one step; do nothing if the process has ended."""
        if self.is_over:
            return
        try:
            asked = self._machine.send(self._answer)
        except StopIteration as end:
            self.outcome = end.value
            return
        except CommitRefused:
            self.is_refused = True
            return
        try:
            for _ in range(1 + self._sends_twice):
                self._answer = self._model.perform(NAME, asked)
        except BrokerError:
            self.is_fenced = True

    def stepped(self, count: int) -> Process:
        for _ in range(count):
            self.step()
        return self

    def run(self) -> RelayOutcome | None:
        while not self.is_over:
            self.step()
        return self.outcome


def written(model: Model) -> list[list[bytes | None]]:
    return [model.values(place) for place in PLACES]


def steps_of(batch_id: int) -> int:
    """Number of steps of a complete process."""
    model = Model()
    for one in range(batch_id):
        Process(model, one).run()
    process, count = Process(model, batch_id), 0
    while not process.is_over:
        process.step()
        count += 1
    return count


def started(batch_id: int) -> Model:
    """A model in which all earlier micro-batches are written."""
    model = Model()
    for one in range(batch_id):
        assert Process(model, one).run() is RelayOutcome.WRITTEN
    return model


def finish(model: Model, batch_id: int) -> None:
    """Continue as Spark does: repeat this micro-batch until it is done, then write the others."""
    assert Process(model, batch_id).run() in (RelayOutcome.WRITTEN, RelayOutcome.WRITTEN_BEFORE)
    for one in range(batch_id + 1, len(MICRO_BATCHES)):
        assert Process(model, one).run() is RelayOutcome.WRITTEN
    assert written(model) == EXPECTED
    assert not model.is_open


def test_steps_in_their_order() -> None:
    model = started(1)
    model.steps.clear()
    assert Process(model, 1).run() is RelayOutcome.WRITTEN
    assert [type(step).__name__ for step in model.steps] == [
        "Begin", "ReadRecord", "AddPartitions", "Append", "Append", "AddRecord", "WriteRecord", "Commit"
    ]  # fmt: skip
    assert model.records == {NAME: 2}
    finish(model, 1)


@pytest.mark.parametrize("batch_id", MICRO_BATCHES)
def test_a_process_dies_anywhere(batch_id: int) -> None:
    """A crash before a step is requested, or after it without its answer, is the same for the cluster."""
    count = steps_of(batch_id)
    for until, until_again in product(range(count), range(count)):
        model = started(batch_id)
        Process(model, batch_id).stepped(until)
        Process(model, batch_id).stepped(until_again)
        finish(model, batch_id)


@pytest.mark.parametrize("batch_id", MICRO_BATCHES)
def test_answers_are_lost_and_requests_repeated(batch_id: int) -> None:
    model = started(batch_id)
    assert Process(model, batch_id, sends_twice=True).run() is RelayOutcome.WRITTEN
    finish(model, batch_id)


@pytest.mark.parametrize("batch_id", MICRO_BATCHES)
def test_commit_with_a_lost_answer_is_found_by_the_next_process(batch_id: int) -> None:
    model = started(batch_id)
    Process(model, batch_id).stepped(steps_of(batch_id) - 1)
    assert isinstance(model.steps[-1], Commit)
    assert Process(model, batch_id).run() is RelayOutcome.WRITTEN_BEFORE
    finish(model, batch_id)


@pytest.mark.parametrize("batch_id", [0, 2])
def test_record_is_read_after_fencing(batch_id: int) -> None:
    """Trap: a process that reads the record before fencing may miss a commit of another process.

    Two processes with the same micro-batch take turns in each possible order, and in some orders each request of one
    reaches the cluster twice.
    """
    count = steps_of(batch_id)
    for firsts in combinations(range(2 * count), count):
        model = started(batch_id)
        processes = [Process(model, batch_id), Process(model, batch_id, sends_twice=firsts[0] == 0)]
        for turn in range(2 * count):
            processes[turn not in firsts].step()
        assert all(one.is_over for one in processes)
        assert [one.outcome for one in processes].count(RelayOutcome.WRITTEN) <= 1
        finish(model, batch_id)


@pytest.mark.parametrize("batch_id", MICRO_BATCHES)
def test_orphan_commit_process_is_fenced(batch_id: int) -> None:
    """Trap: the committing process outlives its driver. If it has not committed yet, it must not be able to."""
    for until in range(1, steps_of(batch_id) - 1):
        model = started(batch_id)
        orphan = Process(model, batch_id).stepped(until)
        successor = Process(model, batch_id).stepped(1)
        orphan.run()
        assert orphan.is_fenced
        assert successor.run() is RelayOutcome.WRITTEN
        finish(model, batch_id)


def test_an_orphan_of_an_earlier_micro_batch_writes_nothing() -> None:
    """A late orphan writes nothing either: it fences the process of the next micro-batch, which then tries again."""
    for until, begun in product(range(steps_of(0)), range(steps_of(1))):
        model = Model()
        orphan = Process(model, 0).stepped(until)
        Process(model, 0).run()
        successor = Process(model, 1).stepped(begun)
        orphan.run()
        successor.run()
        finish(model, 1)


@given(st.data())
def test_many_processes_take_turns(data: st.DataObject) -> None:
    """Some of them begin in the middle, some die."""
    batch_id = data.draw(st.sampled_from(list(MICRO_BATCHES)))
    model = started(batch_id)
    processes = [Process(model, batch_id)]
    for chosen in data.draw(st.lists(st.integers(0, 3), max_size=60)):
        if chosen >= len(processes):
            processes.append(Process(model, batch_id, sends_twice=data.draw(st.booleans())))
        processes[chosen if chosen < len(processes) else -1].step()
    finish(model, batch_id)


# --- one process by itself


def asked(job: Job, *answers: Any, frames: Sequence[Frame] = ()) -> list[Step]:
    """The first steps of a job, with these answers."""
    machine = relay(job, frames)
    return [machine.send(answer) for answer in (None, *answers)]


def performed(model: Model, machine: Generator[Step, Any, RelayOutcome]) -> RelayOutcome:
    answer = None
    while True:
        try:
            answer = model.perform(NAME, machine.send(answer))
        except StopIteration as end:
            outcome: RelayOutcome = end.value
            return outcome


def test_a_job_without_rows_has_no_transaction() -> None:
    with pytest.raises(StopIteration) as end:
        next(relay(Job(NAME, None, ()), []))
    assert end.value.value is RelayOutcome.NOTHING_TO_WRITE


@pytest.mark.parametrize("batch_id", range(2))
def test_a_micro_batch_is_recorded_without_rows_too(batch_id: int) -> None:
    """Otherwise the next micro-batch with rows would miss its record, because it may have expired."""
    model = started(batch_id)
    model.steps.clear()
    assert performed(model, relay(Job(NAME, batch_id, ()), [])) is RelayOutcome.WRITTEN
    assert [type(step).__name__ for step in model.steps] == [
        "Begin",
        "ReadRecord",
        "AddRecord",
        "WriteRecord",
        "Commit",
    ]
    assert model.records == {NAME: batch_id + 1}


@pytest.mark.parametrize("record", [None, 1, 2])
def test_a_record_that_is_missing(record: int | None) -> None:
    """The record may also be that of an earlier micro-batch, for instance if another sink has written meanwhile. Only
    the user can decide.
    """
    job = Job(NAME, 3, PLACES)
    with pytest.raises(CommitRefused, match="whether micro-batch 3 is written already: group query has no record"):
        asked(job, PRODUCER, record)
    assert asked(replace(job, is_missing_accepted=True), PRODUCER, record)[-1] == AddPartitions(PRODUCER, PLACES)
    assert asked(replace(job, places=()), PRODUCER, record)[-1] == AddRecord(PRODUCER)  # no rows to double


def test_a_record_of_the_one_before() -> None:
    for batch_id, record in ((0, None), (3, 3)):
        assert asked(Job(NAME, batch_id, PLACES), PRODUCER, record)[-1] == AddPartitions(PRODUCER, PLACES)


def test_a_record_from_the_future() -> None:
    """The checkpoint was restored: its micro-batches have the numbers of others."""
    with pytest.raises(CommitRefused, match=r"micro-batch 3 is to be written, .* recorded that 4 was"):
        asked(Job(NAME, 3, PLACES), PRODUCER, 5)


def test_a_job_that_is_done_once_keeps_no_record() -> None:
    frames = MICRO_BATCHES[0]
    steps = asked(Job(NAME, None, PLACES), PRODUCER, None, None, frames=frames)
    assert [type(step) for step in steps] == [Begin, AddPartitions, Append, Commit]


def test_damaged_staging_is_not_committed() -> None:
    def damaged() -> Iterator[Frame]:
        yield from MICRO_BATCHES[0]
        raise StagingLost("its CRC is another")

    model = Model()
    with pytest.raises(StagingLost):
        performed(model, relay(Job(NAME, 0, PLACES), damaged()))
    assert written(model) == [[], []]
    finish(model, 0)


def test_sequences_go_on_and_begin_anew() -> None:
    frames = [Frame(PLACES[0], frame(PLACES[0], b"a", b"b").batch, count) for count in (2**31 - 1, 2, 2)]
    steps = asked(Job(NAME, None, PLACES[:1]), PRODUCER, None, None, None, frames=frames)
    batches = [batches_of(step.batches[PLACES[0]])[0] for step in steps if isinstance(step, Append)]
    assert [one.base_sequence for one in batches] == [0, 2**31 - 1, 1]
    assert {(one.producer_id, one.producer_epoch, one.is_transactional) for one in batches} == {(5, 6, True)}


# --- size of a step


def test_window_has_at_most_one_batch_of_each_partition() -> None:
    one, other = (frame(place, b"v") for place in PLACES)
    assert list(windows([one, other, one, one, other, other])) == [[one, other], [one], [one, other], [other]]
    assert list(windows([])) == []


def test_not_more_at_once_than_fits() -> None:
    places = [TopicPartition("t", number) for number in range(20)]
    frames = [Frame(place, bytes(1 << 20), 1) for place in places]
    assert [len(window) for window in windows(frames)] == [8, 8, 4]
    assert APPEND_MAX_BYTES == 8 << 20
    assert [len(window) for window in windows(frames, 1000)] == [1] * 20
