"""Tasks on workers: as many at once as there are workers, and none after one has failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from spark_connectors.jobs.workers import LocalWorkers, OneByOne, SparkWorkers, Workers, outcomes


def doubled(number: int) -> int:
    return 2 * number


def wrong_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


def process(_: int) -> int:
    return os.getpid()


marked: list[int] = []  # of this process and its forks


def marks(_: int) -> list[int]:
    return marked


def on_request_to_leave(_: int) -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]


@contextmanager
def thread() -> Iterator[None]:
    """Another thread beside this one."""
    end = threading.Event()
    started = threading.Thread(target=end.wait)
    started.start()
    try:
        yield
    finally:
        end.set()
        started.join()


def beside_a_thread() -> LocalWorkers:
    with thread():
        return LocalWorkers(2)


class FakeContext:
    """Fake of Spark's context: tasks run where they are collected."""

    defaultParallelism = 2  # noqa: N815 # Spark's name

    def parallelize(self, wanted: list[int], slices: int) -> FakeRows:
        assert slices == len(wanted)
        return FakeRows(wanted)


class FakeRows:
    def __init__(self, rows: list[int]) -> None:
        self._rows = rows

    def map(self, task: object) -> FakeRows:
        assert callable(task)
        return FakeRows([task(row) for row in self._rows])

    def collect(self) -> list[int]:
        return self._rows


class FakeSession:
    sparkContext = FakeContext()  # noqa: N815


WORKERS: dict[str, Callable[[], Workers]] = {
    "one": OneByOne,
    "local": lambda: LocalWorkers(2),
    "local, beside a thread": beside_a_thread,
    "spark": lambda: SparkWorkers(FakeSession()),
}


@pytest.fixture(params=WORKERS)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with closing(WORKERS[request.param]()) as found:
        yield found


def test_each_task_is_done_once(workers: Workers) -> None:
    assert sorted(workers.map(doubled, range(20))) == list(range(0, 40, 2))


def test_nothing_to_do_is_no_error(workers: Workers) -> None:
    assert list(workers.map(doubled, ())) == []


def test_exception_of_a_task_is_raised(workers: Workers) -> None:
    with pytest.raises(ValueError, match="three"):
        list(workers.map(wrong_at_three, range(20)))


def test_outcomes_come_with_their_inputs(workers: Workers) -> None:
    assert dict(outcomes(workers, doubled, range(20))) == {number: 2 * number for number in range(20)}


def test_no_more_is_taken_than_is_soon_begun(workers: Workers) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield len(taken)

    outcomes = workers.map(doubled, endless())
    next(outcomes)
    assert len(taken) <= 2 * 2 * workers.count
    if hasattr(outcomes, "close"):
        outcomes.close()


def test_local_workers_are_processes_of_their_own() -> None:
    with closing(LocalWorkers(2)) as workers:
        assert os.getpid() not in set(workers.map(process, range(4)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not copied")
def test_first_local_workers_have_the_memory_of_their_owner(tmp_path: Path) -> None:
    """The script runs in a process without threads; xdist has one."""
    script = tmp_path / "owner.py"
    script.write_text(
        "from contextlib import closing\n"
        "from spark_connectors.jobs.workers import LocalWorkers\n"
        "marked = []\n"
        "def marks(_):\n"
        "    return marked\n"
        "if __name__ == '__main__':\n"
        "    marked.append(1)\n"
        "    with closing(LocalWorkers(2)) as workers:\n"
        "        print(*workers.map(marks, [0]))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[1]\n"


def test_a_process_with_threads_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.marked", [1])
    with closing(beside_a_thread()) as workers:
        assert list(workers.map(marks, [0])) == [[]]


def test_local_workers_do_not_leave_as_their_owner_does() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with closing(LocalWorkers(1)) as workers:
            assert list(workers.map(on_request_to_leave, [0])) == [[signal.SIG_DFL, signal.SIG_DFL]]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_local_workers_stay_for_the_next_tasks_until_they_are_closed() -> None:
    with closing(LocalWorkers(1)) as workers:
        [found] = set(workers.map(process, range(2)))
        assert set(workers.map(process, range(2))) == {found}
        os.kill(found, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(found, 0)


def test_local_workers_are_new_ones_where_a_task_has_failed() -> None:
    with closing(LocalWorkers(1)) as workers:
        with pytest.raises(ValueError, match="three"):
            list(workers.map(wrong_at_three, [3]))
        assert list(workers.map(doubled, [3])) == [6]


def test_local_workers_end_after_their_owner_is_killed(tmp_path: Path) -> None:
    """All workers hold a pipe, whose end shows that the last one is gone."""
    script = tmp_path / "owner.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from spark_connectors.jobs.workers import LocalWorkers\n"
        "if __name__ == '__main__':\n"
        "    tasks = LocalWorkers(2).map(time.sleep, [0, 600])\n"
        "    next(tasks)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    owner = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=60, check=False)
    assert owner.returncode == -signal.SIGKILL
