"""A stream from topic to topic whose driver, executors, Python and broker are killed; then its output is checked."""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compat_tests.applications.spark.copier import FAILED, Task
from compat_tests.applications.spark.drivers import Driver
from compat_tests.applications.spark.feed import Feed
from compat_tests.applications.spark.kill_plan import NAMES, Life, Losses, Target, lives
from compat_tests.applications.spark.orphans import Orphan, Orphans
from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.faults.copies import check_copies
from compat_tests.faults.fault_plan import Fault
from compat_tests.faults.faulty_proxy import FaultyProxy
from compat_tests.features.transactions.readers import messages_of, undecided
from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.processes import is_running, kill
from spark_connectors.wire.messages.init_producer_id import INIT_PRODUCER_ID
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat_tests.harness.broker import Broker
    from spark_connectors.wire.api import Api

SOURCE, SINK = "source", "sink"
PARTITIONS: Final = {SOURCE: 4, SINK: 3}
BROKER_CONFIG: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
PROGRESS_WITHIN_S = 90.0
COMMITS_WITHIN_S = 5.0  # a kill that is to hit a commit does not wait for longer
CALM_MAX_S = 0.3
COMMIT_S = 0.1  # the usual time of a commit
ENDS_WITHIN_S = 180.0
HELD_MAX_MS = 2 * int(1000 * PROGRESS_WITHIN_S)  # until the next driver has begun to commit
EXECUTOR_MIB = 600
MASTERS: Final = {False: "local[2,3]", True: f"local-cluster[2,1,{EXECUTOR_MIB}]"}  # by whether it is a cluster
KEYLESS = -1  # in no order
T = TypeVar("T")


def run(broker: Broker, directory: Path, seed: int, kills: int) -> str:
    """Run the campaign and return a line for the ledger. Raises AssertionError with the seed and the anomalies."""
    with FaultyProxy(losses := Losses(seed)) as proxy, Driver(directory) as driver:
        port = broker.listen_behind(proxy.port)
        with broker:
            proxy.serve(port)
            for topic, partitions in PARTITIONS.items():
                create_topic(broker, topic, partitions)
            campaign = Campaign(broker, proxy, losses, driver, directory, seed)
            began_s = time.monotonic()
            campaign.run(lives(seed, kills))
            lasted_s = time.monotonic() - began_s
            campaign.copy_the_rest()
            summary, anomalies = campaign.outcome()
    summary = f"seed {seed}, {summary}, {60 * kills / lasted_s:.1f} kills a minute, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {seed}: {anomalies}; see {directory}"
    return summary


class Campaign:
    """A campaign. All processes connect through the proxy, but the feed and the final reader do not."""

    def __init__(
        self, broker: Broker, proxy: FaultyProxy, losses: Losses, driver: Driver, directory: Path, seed: int
    ) -> None:
        self._broker = broker
        self._proxy = proxy
        self._losses = losses
        self._driver = driver
        self._directory = directory
        self._choice = random.Random(seed)
        self._feed = Feed(broker, SOURCE, seed)
        self._killed = Counter[Target]()
        self._orphan: Orphan | None = None  # the process that is held
        self._orphans = Orphans()

    def run(self, planned: list[Life]) -> None:
        """Play the lives. Each begins with the start of a driver; then the orphan of the life before goes on."""
        first, *others = (self._task(is_cluster=life.is_cluster) for life in planned)
        self._driver.prepare(first)
        self._feed.start()
        try:
            for life, following in zip(planned, [*others, self._task(has_end=True)], strict=True):
                self._live(life, following)
        finally:
            self._feed.finish()

    def copy_the_rest(self) -> None:
        """Copy the rest without faults. Afterwards no process runs that could still write."""
        self._proxy.end_faults()
        self._wait(lambda: not undecided(self._broker, SOURCE, PARTITIONS[SOURCE]), "the source stays open")
        self._driver.start()
        self._release_orphan()
        assert self._driver.wait(ENDS_WITHIN_S) == 0, self._driver.log_tail()
        self._wait(lambda: not undecided(self._broker, SINK, PARTITIONS[SINK]), "the sink stays open")

    def outcome(self) -> tuple[str, list[str]]:
        """The summary, and the anomalies."""
        source, sink = (by_key(self._broker, topic) for topic in (SOURCE, SINK))
        copied = sum(map(len, source.values()))
        aborted = sum(map(len, by_key(self._broker, SOURCE, "read_uncommitted").values())) - copied
        assert copied, "nothing was committed"
        assert aborted, "nothing was aborted"
        assert self._orphans.fenced, "nobody was fenced"
        faults = self._proxy.faults().items()
        lost = {NAMES[key]: count for (key, fault), count in faults if fault is Fault.REPLY_LOST}
        killed = {target.value: count for target, count in self._killed.items()}
        failed = Counter(re.findall(rf"^{FAILED} (.*)$", self._driver.log_text(), re.MULTILINE))
        summary = (
            f"kill -9 of {counted(killed)}; fenced of commits that went on: {self._orphans}; "
            f"lost replies: {counted(lost)}; failed queries: {counted(failed)}; "
            f"{self._done() + 1} micro-batches, {copied} records, {aborted} others aborted"
        )
        return summary, [*check_copies(source, sink), *self._orphans.anomalies]

    def _task(self, *, is_cluster: bool = False, has_end: bool = False) -> Task:
        to = {"kafka.bootstrap.servers": self._proxy.bootstrap}
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{EXECUTOR_MIB}m",
            "spark.driver.extraJavaOptions": " ".join((f"-Dspark.test.home={self._driver.home}", *QUICK_JVM)),
            "spark.executor.memory": f"{EXECUTOR_MIB}m",
            "spark.executor.extraJavaOptions": " ".join(QUICK_JVM),
            "spark.deploy.maxExecutorRetries": "-1",  # how often executors may die before the master gives up
        }
        source = {
            **to, "subscribe": SOURCE, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": "2000" if has_end else "200",
        }  # fmt: skip
        sink = {
            **to, "topic": SINK, "checkpointLocation": str(self._directory / "checkpoint"),
            "kafka.request.timeout.ms": str(HELD_MAX_MS), "kafka.delivery.timeout.ms": str(HELD_MAX_MS),
        }  # fmt: skip
        return Task(MASTERS[is_cluster], settings, source, sink, has_end)

    def _live(self, life: Life, following: Task) -> None:
        self._driver.start()
        self._release_orphan()
        self._wait_for_progress()
        self._driver.prepare(following)
        for target in life.targets:
            self._wait_for_progress()
            self._strike(target, life.held_at)

    def _strike(self, target: Target, held_at: Api[Any, Any]) -> None:
        if target is Target.DRIVER_ALONE:
            self._leave_an_orphan(held_at)
        else:
            self._wait_for_a_moment()
            self._kill(target)
        self._killed[target] += 1

    def _kill(self, target: Target) -> None:
        match target:
            case Target.BROKER:
                assert self._broker.is_alive, f"the broker was gone before:\n{self._broker.log_tail()}"
                self._broker.kill()
                self._broker.start()
            case Target.EXECUTOR:
                kill(self._choice.choice(self._running_processes(self._driver.executors)))
            case Target.WORKER:
                group: list[int] = self._choice.choice(self._running_processes(self._driver.workers))
                kill(self._choice.choice(group))
            case _:
                self._driver.kill()

    def _running_processes(self, there: Callable[[], list[T]]) -> list[T]:
        """The processes of a kind, once there are some."""
        found: list[T] = []

        def has_found() -> bool:
            found.extend(there())
            return bool(found)

        self._wait(has_found, "no process to kill")
        return found

    def _leave_an_orphan(self, held_at: Api[Any, Any]) -> None:
        self._losses.hold_next(held_at.key)
        self._wait(lambda: not self._losses.is_waiting, "nothing is committed")
        self._orphan = Orphan(
            held_at, self._driver.kill_alone(), self._request_count(OFFSET_FETCH), len(self._proxy.late_requests())
        )

    def _release_orphan(self) -> None:
        """Release the orphan, if there is one, soon after InitProducerId of the next driver was answered, and wait for
        its end."""
        if self._orphan is None:
            return
        orphan, self._orphan = self._orphan, None
        self._wait(lambda: self._request_count(OFFSET_FETCH) > orphan.reads, "the next driver commits nothing")
        time.sleep(self._choice.uniform(0, COMMIT_S))
        self._proxy.release_held()
        self._wait(lambda: not any(map(is_running, orphan.processes)), "what has outlived its driver does not end")
        self._orphans.judge(orphan.held_at, self._proxy.late_requests()[orphan.answers :])

    def _wait_for_a_moment(self) -> None:
        """Wait for a moment within a micro-batch, or soon after its commit has begun."""
        if self._choice.random() < 0.5:
            before = self._request_count(INIT_PRODUCER_ID)
            deadline_s = time.monotonic() + COMMITS_WITHIN_S
            while self._request_count(INIT_PRODUCER_ID) == before and time.monotonic() < deadline_s:
                time.sleep(0.005)
        time.sleep(self._choice.uniform(0, CALM_MAX_S))

    def _request_count(self, api: Api[Any, Any]) -> int:
        """The number of requests of an API so far."""
        return self._proxy.requests()[api.key, api.version]

    def _wait_for_progress(self) -> None:
        before = self._done()
        self._wait(lambda: self._done() > before or not self._driver.is_running, "no micro-batch is done")
        assert self._driver.is_running, f"the driver has left:\n{self._driver.log_tail()}"

    def _done(self) -> int:
        """The last micro-batch that Spark has recorded as done, or -1."""
        commits = self._directory / "checkpoint" / "commits"
        return max((int(one) for one in os.listdir(commits) if one.isdecimal()), default=-1) if commits.exists() else -1

    def _wait(self, condition: Callable[[], bool], complaint: str) -> None:
        try:
            wait_until(condition, complaint, PROGRESS_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._broker.log_tail()}\n{self._driver.log_tail()}") from None


def by_key(broker: Broker, topic: str, isolation: str = "read_committed") -> dict[int, list[str]]:
    """The values by key, in their order: a key has one partition in each topic. Values without a key are sorted."""
    found: dict[int, list[str]] = {}
    for partition in range(PARTITIONS[topic]):
        for message in messages_of(broker, topic, isolation, partition=partition):
            key, value = message.key(), message.value()
            assert isinstance(value, bytes)
            found.setdefault(KEYLESS if key is None else int(key), []).append(value.decode())
    found.get(KEYLESS, []).sort()
    return found


def counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "none"
