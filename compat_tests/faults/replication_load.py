"""Stock clients of three brokers, in processes of their own: they write, copy in transactions, and commit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.faults.campaign import finish, read_all
from compat_tests.faults.committed_offsets import Sight, check_committed
from compat_tests.faults.copies import check_copies
from compat_tests.faults.readers import Readers
from compat_tests.faults.spark_copy import OURS, SparkCopy
from compat_tests.faults.transformation import INPUT, OUTPUT, PARTITIONS, Transformation, is_transformed, values_of
from compat_tests.faults.writers import JavaWriter, WriterProcess, confluent, stock
from compat_tests.features.transactions.readers import committed, ends, wait_for_markers
from compat_tests.harness.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat_tests.harness.cluster import KafkawireCluster

RECORDS_PER_S: Final = 40  # of each kind of writer; of those in processes, of each
GROUP: Final = "committers"
MEMBERS: Final = 2
READ_WITHIN_S: Final = 90.0


class Load:
    """All clients, each kind in processes of its own."""

    def __init__(self, cluster: KafkawireCluster, directory: Path, *, has_go: bool, has_spark: bool) -> None:
        self._cluster = cluster
        self.transformation = Transformation(cluster, directory, cluster.bootstrap, RECORDS_PER_S)
        self.history = self.transformation.history
        self.of_partitions = [
            confluent(cluster, INPUT, number, f"p{number}", self.history, RECORDS_PER_S) for number in range(PARTITIONS)
        ]
        java = JavaWriter(7, cluster, INPUT, directory, self.history, RECORDS_PER_S)
        self._processes: list[WriterProcess | JavaWriter] = [*self.of_partitions, java]
        if has_go:
            self._processes.append(stock("franz-go", cluster, INPUT, PARTITIONS, self.history, RECORDS_PER_S))
        command = [sys.executable, "-m", "compat_tests.faults.confluent_committer", cluster.bootstrap, INPUT, GROUP]
        self._members = [Host(command) for _ in range(MEMBERS)]
        self._readers = Readers(cluster, INPUT, PARTITIONS, ["franz-go"] if has_go else [])
        self.spark = SparkCopy(cluster, directory / "spark-copy", INPUT, OURS) if has_spark else None
        self.by_spark = 0  # records that it has copied, once that was checked

    def start(self) -> None:
        self.transformation.start()
        for writer in self._processes:
            writer.start()
        self._readers.start()
        if self.spark is not None:
            self.spark.start()

    def revive(self) -> None:
        for one in self.transformation.transformers:
            one.revive()

    def stop_writing(self) -> list[str]:
        """Stop the writers and return their failures."""
        return finish([self.transformation.writer, *self._processes])

    def kill(self) -> None:
        """Kill all clients that still run."""
        for member in self._members:
            member.kill()
        for one in (*self._processes, *self.transformation.transformers, self._readers):
            one.end()
        if self.spark is not None:
            self.spark.end()

    def checks(self) -> dict[str, Callable[[], list[str]]]:
        """The checks by name. They are run when no client writes and all replicas are in sync."""
        return {
            "records": self._check_records,
            "readers": self._check_readers,
            "copies": self._check_copies,
            "copies by Spark": self._check_spark,
            "committed offsets": self._check_offsets,
        }

    def _check_records(self) -> list[str]:
        return self.history.check(read_all(self._cluster, INPUT))

    def _check_readers(self) -> list[str]:
        """Check the readers. They may read uncommitted records again, but no records that are not in the log."""
        self._readers.wait_until_all_is_committed()
        return self._readers.anomalies(read_all(self._cluster, INPUT), is_exact=False)

    def _check_copies(self) -> list[str]:
        inputs = values_of(self._cluster, INPUT)
        self.transformation.wait_until(
            lambda: is_transformed(self._cluster, inputs), "not all that is written is copied"
        )
        self.transformation.leave()
        wait_for_markers(self._cluster, OUTPUT, PARTITIONS)
        return self.transformation.anomalies(inputs)

    def _check_spark(self) -> list[str]:
        if self.spark is None:
            return []
        self.spark.begin_again()
        copied = self.spark.copied()
        self.by_spark = sum(map(len, copied.values()))
        return check_copies(values_of(self._cluster, INPUT), copied)

    def _check_offsets(self) -> list[str]:
        wait_until(self._have_members_read_all, "members do not commit all there is", READ_WITHIN_S)
        for one in self._members:
            one.leave()
        return check_committed(self.sights)

    def _have_members_read_all(self) -> bool:
        all_of_it = ends(self._cluster, INPUT, PARTITIONS, "read_committed")
        return [committed(self._cluster, GROUP, INPUT, number) for number in range(PARTITIONS)] == all_of_it

    @property
    def sights(self) -> list[Sight]:
        return [Sight(*each["sight"]) for one in self._members for each in one.events("") if "sight" in each]
