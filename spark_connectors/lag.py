"""Listener of Spark that commits the offsets of streaming queries for consumer groups, so that tools show their lag.

It connects Spark's interfaces with `progress`, and decides nothing. It works for Spark's own `kafka` source too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_connectors.progress.commits import commit
from spark_connectors.progress.committer import Committer
from spark_connectors.progress.groups import Groups, Metrics, Query
from spark_connectors.progress.options import report_options
from spark_connectors.progress.positions import SourceEnd, positions_of
from spark_connectors.wire import Cluster
from spark_connectors.wire.clock import SystemClock


class LagReporter(StreamingQueryListener):  # type: ignore[misc] # its types are not looked at
    """`spark.streams.addListener(LagReporter("localhost:9092"))`: after each micro-batch, commits the offsets up to
    which a query has read for a consumer group. No query fails or waits because of it.

    If the cluster does not answer, the commit is tried again. If it is refused (the group has members of its own, a
    topic is gone), that is logged once, and the next micro-batch tries again.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str = "spark-{query}",
        *,
        queries: Collection[str] | None = None,
        topics: Collection[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Configure a reporter. In `group_id`, `{query}` stands for the name of a query, or for its id if it has none.

        `queries` limits the reporter to queries of these names, `topics` to these topics. `options` are Kafka's
        settings, with the prefix `kafka.` as for the source. Raises OptionRefused.
        """
        super().__init__()
        settled = report_options(bootstrap_servers, group_id, queries, topics, options or {})
        self._clock = SystemClock()
        cluster = Cluster(settled.bootstrap, settled.settings, clock=self._clock)
        self._committer = Committer(Groups(settled), partial(commit, cluster), cluster.close, self._clock)

    def drain(self, *queries: Any, timeout_s: float = 10.0) -> bool:
        """Wait at the end of a program until `queries` (default: all known ones) have ended and their last offsets are
        committed. Returns whether they are. Missing offsets are logged.

        Spark reports the last micro-batch of a query after `awaitTermination` has returned.
        """
        return self._committer.drain([Query(str(one.id), str(one.runId), one.name) for one in queries], timeout_s)

    def metrics(self) -> Metrics:
        """Counts and errors of the reporter."""
        return self._committer.metrics()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ignore further events, try once more to commit waiting offsets, and end the thread."""
        self._committer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 # Spark's names
        """Called before `start` returns."""
        query = Query(str(event.id), str(event.runId), event.name)
        self._committer.submit(lambda groups: groups.started(query))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Called after a micro-batch, and now and then without one."""
        progress = event.progress
        query = Query(str(progress.id), str(progress.runId), progress.name)
        positions = positions_of(SourceEnd(one.description, one.endOffset) for one in progress.sources)
        self._committer.submit(lambda groups: groups.progressed(query, positions))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Called now and then while there is nothing to read."""
        self._committer.submit(lambda groups: groups.idled(str(event.runId), self._clock.now_s()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Called at the end of a query. A failed query has also read up to its last micro-batch."""
        self._committer.submit(lambda groups: groups.ended(str(event.runId)))
