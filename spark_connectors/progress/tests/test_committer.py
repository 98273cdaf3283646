"""The committer's thread: events do not wait, `drain` waits for earlier events, and `close` ends the thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from spark_connectors.progress.committer import THREAD_NAME, Committer
from spark_connectors.progress.groups import Commit, CommitResult, Groups, Query
from spark_connectors.progress.options import report_options
from spark_connectors.wire import TopicPartition, WireError
from spark_connectors.wire.tests.fakes import FakeClock

WITHIN_S = 20.0  # nothing takes long; the limit ends a failed test
FIRST = TopicPartition("t", 0)
ORDERS = Query("id-1", "run-1", "orders")
OTHERS = Query("id-2", "run-2", "others")


class FakeCluster:
    """Takes commits while it is `open`. `next` has other outcomes for the next ones."""

    def __init__(self) -> None:
        self.asked: list[Commit] = []
        self.was_asked = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.next: list[CommitResult | Exception] = []
        self.is_closed = False

    def commit(self, wanted: Commit) -> CommitResult:
        self.asked.append(wanted)
        self.was_asked.release()
        assert self.open.wait(WITHIN_S)
        result = self.next.pop(0) if self.next else CommitResult(wanted.positions)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def committer(cluster: FakeCluster) -> Iterator[Committer]:
    groups = Groups(report_options("one", "spark-{query}", None, None, {}))
    made = Committer(groups, cluster.commit, cluster.close, FakeClock())
    yield made
    cluster.open.set()
    made.close(WITHIN_S)


def progressed(committer: Committer, offset: int, query: Query = ORDERS) -> None:
    committer.submit(lambda groups: groups.progressed(query, {FIRST: offset}))


def end(committer: Committer, query: Query = ORDERS) -> None:
    committer.submit(lambda groups: groups.ended(query.run_id))


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == THREAD_NAME]


def test_events_do_not_wait_for_a_cluster_that_does_not_answer(committer: Committer, cluster: FakeCluster) -> None:
    """Only the newest of the offsets that arrive meanwhile are committed."""
    cluster.open.clear()
    progressed(committer, 0)
    assert cluster.was_asked.acquire(timeout=WITHIN_S)
    for offset in range(1, 100):
        progressed(committer, offset)
    end(committer)
    assert not committer.drain([], 0.0)
    cluster.open.set()
    assert committer.drain([], WITHIN_S)
    assert [one.positions for one in cluster.asked] == [{FIRST: 0}, {FIRST: 99}]


def test_drain_waits_for_late_events_of_spark(committer: Committer, cluster: FakeCluster) -> None:
    """The last progress and the end of a query come after `awaitTermination` has returned."""
    committer.submit(lambda groups: groups.started(ORDERS))
    is_waiting = threading.Barrier(2)

    def late() -> None:
        is_waiting.wait(WITHIN_S)
        progressed(committer, 7)
        end(committer)

    spark = threading.Thread(target=late)
    spark.start()
    is_waiting.wait(WITHIN_S)
    assert committer.drain([ORDERS], WITHIN_S)
    spark.join()
    assert committer.metrics().committed == {"spark-orders": {FIRST: 7}}


def test_draining_is_over_when_time_is(committer: Committer, caplog: pytest.LogCaptureFixture) -> None:
    progressed(committer, 1, OTHERS)
    progressed(committer, 1)
    end(committer)
    assert committer.drain([ORDERS], WITHIN_S)
    assert not committer.drain([], 0.0)
    assert caplog.messages == ["not all offsets are committed: query others has not ended"]


def test_drain_does_not_wait_for_refused_offsets(
    committer: Committer, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.next = [CommitResult({}, "it has members")]
    progressed(committer, 1)
    end(committer)
    assert not committer.drain([], WITHIN_S)
    assert caplog.messages == ["it has members", "not all offsets are committed: it has members"]
    assert committer.drain([OTHERS], WITHIN_S)


@pytest.mark.parametrize("trouble", [WireError("nobody is there"), KeyError("a bug")], ids=["away", "bug"])
def test_committer_repeats_a_commit_after_any_error(
    committer: Committer, cluster: FakeCluster, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    """The commit is repeated without a new event."""
    caplog.set_level(logging.WARNING)
    cluster.next = [trouble]
    progressed(committer, 1)
    assert cluster.was_asked.acquire(timeout=WITHIN_S)
    end(committer)
    assert committer.drain([], WITHIN_S)
    assert [one.positions for one in cluster.asked] == [{FIRST: 1}] * 2
    assert "offsets are committed again" in caplog.messages
    assert committer.metrics().failures == 1


def test_draining_does_not_wait_until_a_pause_is_over(
    committer: Committer, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connectors.progress.groups.PAUSE_FIRST_S", 1e6)
    has_failed = threading.Event()

    def note_failure(_: logging.LogRecord) -> bool:
        has_failed.set()
        return True

    logger = logging.getLogger("spark_connectors.progress.committer")
    logger.addFilter(note_failure)
    try:
        cluster.open.clear()
        cluster.next = [WireError("away")]
        progressed(committer, 1)
        end(committer)
        cluster.open.set()
        assert has_failed.wait(WITHIN_S)
        assert committer.drain([], WITHIN_S)
    finally:
        logger.removeFilter(note_failure)


def test_thread_of_the_committer_ends_at_close(committer: Committer, cluster: FakeCluster) -> None:
    assert threads() == []
    progressed(committer, 1)
    assert len(threads()) == 1
    committer.close(WITHIN_S)
    assert threads() == []
    assert cluster.is_closed
    assert [one.positions for one in cluster.asked] == [{FIRST: 1}]
    progressed(committer, 2)
    assert committer.metrics().committed == {"spark-orders": {FIRST: 1}}
    assert not committer.drain([], WITHIN_S)


def test_closing_tries_once_and_no_more(committer: Committer, cluster: FakeCluster) -> None:
    cluster.open.clear()
    cluster.next = [WireError("away"), WireError("away")]
    progressed(committer, 1)
    assert cluster.was_asked.acquire(timeout=WITHIN_S)
    committer.close(0.0)
    cluster.open.set()
    committer.close(WITHIN_S)
    assert threads() == []
    assert len(cluster.asked) == 1


def test_nothing_was_told(committer: Committer) -> None:
    assert committer.drain([], WITHIN_S)
    committer.close(WITHIN_S)
    assert committer.drain([], WITHIN_S)
