"""Leader epochs: where each ends, over restarts and a moved log start (KIP-101)."""

import pytest

from engine.api import EpochEnd, PartitionLog
from engine.logs.recovery.epochs import UNDEFINED, EpochHistory, EpochStart
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import append, open_orders, running


def history(*starts: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochStart(*start) for start in starts)


def test_where_an_epoch_ends() -> None:
    known = history((2, 10), (5, 20), (6, 25))
    assert known.end_of(6, 40) == EpochEnd(6, 40)
    assert known.end_of(5, 40) == EpochEnd(5, 25)
    assert known.end_of(4, 40) == EpochEnd(2, 20)
    assert known.end_of(1, 40) == EpochEnd(1, 10)
    assert known.end_of(7, 40) == UNDEFINED
    assert known.end_of(-1, 40) == UNDEFINED
    assert history().end_of(0, 0) == UNDEFINED


def test_a_moved_log_start_forgets_epochs_that_ended_before_it() -> None:
    known = history((2, 10), (5, 20), (6, 25))
    assert known.since(22).below(100) == ((5, 22), (6, 25))
    assert known.since(25).below(100) == ((6, 25),)
    assert known.since(90).below(100) == ((6, 90),)
    assert history((2, 10)).since(5).below(100) == ((2, 10),)


@pytest.mark.parametrize("starts", [(), ((2, 10),), ((2, 10), (5, 20), (6, 25)), ((0, 0), (3, 7), (4, 20))])
def test_end_of_with_a_log_start_equals_end_of_a_moved_history(starts: tuple[tuple[int, int], ...]) -> None:
    known = history(*starts)
    for log_start in range(30):
        moved = known.since(log_start)
        for epoch in range(-1, 9):
            assert known.end_of(epoch, 40, log_start) == moved.end_of(epoch, 40)


def ends(log: PartitionLog) -> list[tuple[int, int]]:
    found = [log.end_offset_for_epoch(epoch) for epoch in range(6)]
    return [(one.leader_epoch, one.end_offset) for one in found]


async def test_epochs_with_records_survive_restarts() -> None:
    filesystem = SimulatedFileSystem()
    for epoch, is_clean in ((0, True), (1, False), (2, True), (4, False)):
        async with running(filesystem) as store:
            log = await open_orders(store, leader_epoch=epoch)
            if epoch != 1:
                await append(log, b"x", b"y")
            if is_clean:
                await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=5)
        assert ends(log) == [(0, 2), (0, 2), (2, 4), (2, 4), (4, 6), (5, 6)]
        await log.delete_records(3)
        assert ends(log) == [(0, 3), (1, 3), (2, 4), (2, 4), (4, 6), (5, 6)]


def test_drop_from_forgets_epochs_without_records_below_the_offset() -> None:
    known = history((0, 0), (2, 5), (4, 9))
    known.drop_from(9)
    assert known.below(100) == ((0, 0), (2, 5))
    known.drop_from(6)
    assert known.latest == 2
    known.drop_from(0)
    assert known.latest == -1


@pytest.mark.parametrize(
    ("end_offset", "base_offset", "epoch", "found"),
    [
        (10, 10, 3, ((1, 0), (3, 10))),  # no gap
        (10, 11, 1, ((1, 0),)),
        (10, 12, 3, ((1, 0), (2, 11), (3, 12))),
        (10, 16, 5, ((1, 0), (2, 11), (4, 13), (5, 16))),
        (10, 13, 4, ((1, 0), (2, 11), (4, 13))),
        (10, 14, 3, ((1, 0), (2, 11), (3, 14))),  # a leader that told of the fourth was wrong
        (11, 20, 9, ((1, 0), (2, 11), (4, 13), (9, 20))),
        (12, 20, 9, ((1, 0), (4, 13), (9, 20))),
    ],
)
def test_expected_epochs_count_if_the_appended_batch_leaves_a_gap(
    end_offset: int, base_offset: int, epoch: int, found: tuple[tuple[int, int], ...]
) -> None:
    known = history((1, 0))
    known.expect([EpochStart(1, 10), EpochStart(2, 11), EpochStart(4, 13)])
    known.follow(epoch, base_offset, end_offset)
    assert known.below(100) == found


def test_expected_epochs_end_with_a_truncation_and_not_with_a_moved_log_start() -> None:
    expected = [EpochStart(2, 11)]
    known = history((1, 0))
    known.expect(expected)
    assert known.since(5).expects(expected)
    assert not known.since(5).expects(())
    known.drop_from(10)
    assert known.expects(())
