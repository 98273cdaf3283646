"""The hunt for crash states finds the anomalies of broken code. Examining many images is a stage of the suite."""

from __future__ import annotations

import random

import pytest

from engine.api import TopicIdPartition
from engine.commit.appends import PartitionShare
from engine.commit.journal_format import PAGE_SIZE_BYTES, Barrier, BarrierKind, barrier_frame
from engine.commit.syncer import Syncer
from engine.index.stored_index import StoredIndex
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.testing.simulated_loss import Operation
from engine.tests.crash_states.hunt import hunt
from engine.tests.crash_states.images import Choice, choices
from engine.tests.crash_states.timeline import NEVER, Event, RecordingFileSystem, Timeline
from engine.tests.crash_states.workload import run


def test_a_workload_does_the_same_each_time() -> None:
    assert run(1).filesystem.operations == run(1).filesystem.operations


def test_every_loss_is_gone_through_where_there_are_few() -> None:
    operations = [
        Operation("create", "/a", 1),
        Operation("sync_dir", "/"),
        Operation("write", "/a", 1, 0, b"ab"),
        Operation("write", "/a", 1, 2, b"c"),
    ]
    found = set()
    for choice in choices(operations, random.Random(0), 10):
        image = SimulatedFileSystem.replayed(operations)
        image.lose(choice)
        found.add(image.content("/a"))
    assert found == {b"", b"a", b"ab", b"abc", b"\0\0c"}


def test_drawn_losses_begin_with_nothing_and_everything() -> None:
    operations = [Operation("create", "/a", 1), Operation("sync_dir", "/")]
    operations += [Operation("write", "/a", 1, position, b"xy") for position in range(0, 20, 2)]
    contents = []
    for choice in choices(operations, random.Random(0), 4):
        image = SimulatedFileSystem.replayed(operations)
        image.lose(choice)
        contents.append(image.content("/a"))
        again = SimulatedFileSystem.replayed(operations)
        again.lose(Choice(choice.taken))
        assert again.content("/a") == contents[-1]
    assert contents[:2] == [b"", b"xy" * 10]
    assert len(contents) == 4


def test_the_hunt_finds_no_anomaly_in_correct_code() -> None:
    found = hunt(1, share=0.02)
    assert found.images > 20
    assert found.anomalies == []


@pytest.mark.sources
def test_an_answer_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def early(syncer: Syncer, parts: list[PartitionShare]) -> None:
        for part in parts:
            part.owner.durable(part)
        await honest(syncer, parts)

    honest = Syncer.sync
    monkeypatch.setattr(Syncer, "sync", early)
    assert any("legal are" in line for line in hunt(5, share=0.02).anomalies)


def test_the_hunt_finds_index_entries_of_a_lost_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_keeper: StoredIndex, _logs: object) -> None: ...

    monkeypatch.setattr(StoredIndex, "truncate", nothing)
    assert any("the index has" in line for line in hunt(3, share=0.02).anomalies)


def test_a_truncation_is_decided_when_its_barrier_is_durable() -> None:
    partition = TopicIdPartition(b"t" * 16, "topic", 3)
    cut = Event((), 0, is_cut=True)
    filesystem = RecordingFileSystem(timelines=[Timeline(partition, False, 0, events=[cut])])
    filesystem.make_dir("/journal")
    slot = filesystem.open("/journal/0.journal", create=True)
    barrier = Barrier(partition.topic_id, partition.partition, BarrierKind.TRUNCATED)
    slot.write_at([barrier_frame(b"slot-id.", 7, [barrier])], PAGE_SIZE_BYTES)
    assert cut.decided_at == NEVER
    slot.fdatasync()
    assert cut.decided_at == len(filesystem.operations)
