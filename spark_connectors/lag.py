"""Shows the lag of streaming queries to whatever watches consumer groups: a listener of Spark's that commits for them.

It hands over from Spark's interfaces to `progress`, and decides nothing. For Spark's own `kafka` source as for ours.
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
    """`spark.streams.addListener(LagReporter("localhost:9092"))`: after each micro-batch the offsets up to which a
    query has read are committed for a consumer group. No query fails, or waits, because of it.

    A cluster that is away is tried again; what is refused (the group has members of its own, a topic is gone) is logged
    once and tried again with the next micro-batch.
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
        """In `group_id`, `{query}` stands for a query's name, or for its id if it has none.

        `queries` names those that are reported, `topics` those whose offsets are; all of them if not given. `options`
        are Kafka's settings, with the prefix `kafka.` as for the source. Raises OptionRefused.
        """
        super().__init__()
        settled = report_options(bootstrap_servers, group_id, queries, topics, options or {})
        self._clock = SystemClock()
        cluster = Cluster(settled.bootstrap, settled.settings, clock=self._clock)
        self._committer = Committer(Groups(settled), partial(commit, cluster), cluster.close, self._clock)

    def drain(self, *queries: Any, timeout_s: float = 10.0) -> bool:
        """For the end of a program: waits until `queries` have ended, or all that were heard of, and their last offsets
        are committed; whether they are. What is lacking is logged.

        Spark tells of a query's last micro-batch after `awaitTermination` has returned.
        """
        return self._committer.drain([Query(str(one.id), str(one.runId), one.name) for one in queries], timeout_s)

    def metrics(self) -> Metrics:
        """How it is doing."""
        return self._committer.metrics()

    def close(self, timeout_s: float = 10.0) -> None:
        """Hears nothing any more, tries once more to commit what is waiting, and ends its thread."""
        self._committer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 # Spark's names
        """Before `start` returns."""
        query = Query(str(event.id), str(event.runId), event.name)
        self._committer.tell(lambda groups: groups.started(query))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """After a micro-batch, or none for a while."""
        progress = event.progress
        query = Query(str(progress.id), str(progress.runId), progress.name)
        positions = positions_of(SourceEnd(one.description, one.endOffset) for one in progress.sources)
        self._committer.tell(lambda groups: groups.progressed(query, positions))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Now and then while there is nothing to read."""
        self._committer.tell(lambda groups: groups.idled(str(event.runId), self._clock.now_s()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Also of one that has failed: up to its last micro-batch it has read."""
        self._committer.tell(lambda groups: groups.ended(str(event.runId)))
