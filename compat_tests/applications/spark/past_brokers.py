"""The same rows past the broker as by Spark's own source, of topics that change, while the broker is killed.

Of stable offsets, rows only go, by compaction and retention, and none comes. So if kafkawire's source reads between two
reads of Spark's source, it must find all rows of the second one, and none that the first one has not found. When topics
are at rest, all three are the same.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from compat_tests.applications.spark.churn import KEPT, SHED, TIERED, Churn, broker_of
from compat_tests.applications.spark.queries import OURS, STOCK, run_to_end, sealed_files
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WINDOW: Final = 20_000  # offsets of a partition that are read at a time
EARLIEST: Final = -2
ENDS_WITHIN_S = 120.0
CALM_S = 2.0  # a kill happens within it, if the duration of the work is unknown
AT_REST_WITHIN = 20  # reads
OPTIONS: Final = {
    "includeHeaders": "true",
    "kafka.default.api.timeout.ms": "60000",
    "kafka.reconnect.backoff.max.ms": "200",
}
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
# How our source may be told to read: whole segments, parts of them, none from log dirs, ranges for tasks.
WAYS: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"segments.splitBytes": "200000"},
    {"segments.files": "false"},
    {"maxRecordsPerPartition": "1500"},
)
_ALL_OF_IT: Final = "md5(to_json(struct(*), map('ignoreNullFields', 'false'))) as digest"
_ROW: Final = ("topic", "partition", "offset", _ALL_OF_IT)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    digest: str


class Bracket(NamedTuple):
    """The rows of the same offsets by three reads, one after the other."""

    before: Sequence[Row]
    found: Sequence[Row]
    after: Sequence[Row]

    def wrong(self) -> list[str]:
        """The errors of the read in the middle."""
        before, found, after = map(set, self)
        kinds = {
            "doubled": [row for row, times in Counter(self.found).items() if times > 1],
            "invented": sorted(found - before),
            "lost": sorted(after - found),
        }
        return [f"{len(rows)} {kind}: {rows[0]} to {rows[-1]}" for kind, rows in kinds.items() if rows]


def run(spark: SparkSession, directory: Path, seed: int, rounds: int) -> str:
    """Run the campaign and return a line for the ledger. Raises AssertionError with the seed and the anomalies."""
    began_s = time.monotonic()
    with broker_of(directory) as broker, Churn(broker, seed) as churn:
        campaign = Campaign(spark, churn, directory, seed)
        for _ in range(rounds):
            campaign.round()
        campaign.rest()
        done = ", ".join(f"{count} {what}" for what, count in sorted(churn.counts().items()))
    lasted_s = time.monotonic() - began_s
    anomalies = campaign.anomalies
    summary = f"seed {seed}, {rounds} rounds in {lasted_s:.0f} s, {campaign}, {done}, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {seed}: {anomalies}; see {directory}"
    return summary


class Campaign:
    """A campaign that reads in batches, and in a stream that goes on in each round where it ended."""

    def __init__(self, spark: SparkSession, churn: Churn, directory: Path, seed: int) -> None:
        self.anomalies: list[str] = []
        self._spark = spark
        self._churn = churn
        self._output = str(directory / "output")
        self._checkpoint = str(directory / "checkpoint")
        self._choice = random.Random(seed)
        self._done = Counter[str]()

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self._done.items()))

    def round(self) -> None:
        """Read topics that must not lose rows, and others. The broker is killed during each read of kafkawire's
        source."""
        kept = {topic: self._window(topic) for topic in KEPT}
        self._compare({**self._isolation(), **_between(kept), "failOnDataLoss": "true"})
        shed = {topic: [(EARLIEST, end) for end in self._churn.stable_ends(topic)] for topic in SHED}
        self._compare({**self._isolation(), **_between(shed), "failOnDataLoss": "false"})
        with self._killed(CALM_S):
            self._go_on()

    def rest(self) -> None:
        """Stop the writers, and compare again when all is copied and compacted."""
        self._churn.end()
        self._note(self._at_rest({**COMMITTED, "subscribe": ",".join(KEPT), "failOnDataLoss": "true"}))
        self._go_on()
        of_stream = rows_of(self._spark.read.parquet(self._output).select("topic", "partition", "offset", "digest"))
        options = {**COMMITTED, "subscribe": TIERED, "failOnDataLoss": "true"}
        expected = rows_of(self._stock(options).selectExpr(*_ROW))
        self._note(Bracket(expected, of_stream, expected))

    def _window(self, topic: str) -> list[tuple[int, int]]:
        """A range of offsets of each partition, at its end or anywhere."""
        found = []
        for stable in self._churn.stable_ends(topic):
            end = self._choice.choice((stable, self._choice.randint(1, stable)))
            found.append((max(end - WINDOW, 0), end))
        return found

    def _isolation(self) -> Mapping[str, str]:
        return self._choice.choice(({}, COMMITTED))

    def _compare(self, options: Mapping[str, str]) -> None:
        began_s = time.monotonic()
        before = rows_of(self._stock(options).selectExpr(*_ROW))
        with self._killed(time.monotonic() - began_s):
            found = rows_of(self._ours(options).selectExpr(*_ROW))
        self._note(Bracket(before, found, rows_of(self._stock(options).selectExpr(*_ROW))))

    def _at_rest(self, options: Mapping[str, str]) -> Bracket:
        for _ in range(AT_REST_WITHIN):
            reads = (self._stock(options), self._ours(options), self._stock(options))
            found = Bracket(*(rows_of(read.selectExpr(*_ROW)) for read in reads))
            if set(found.before) == set(found.after):
                return found
        raise AssertionError(f"{options['subscribe']}: rows go on to go")

    def _note(self, found: Bracket) -> None:
        self._done["rows compared"] += len(found.found)
        self._done["rows that went meanwhile"] += len(set(found.before) - set(found.after))
        self.anomalies += found.wrong()

    def _go_on(self) -> None:
        """Read the rest of one topic, in many small batches."""
        options = {**self._to(), **self._past(), **COMMITTED, "startingOffsets": "earliest", "failOnDataLoss": "true"}
        stream = self._spark.readStream.format(OURS).options(**options)
        frame = stream.options(subscribe=TIERED, maxOffsetsPerTrigger="5000").load().selectExpr(*_ROW)
        sink = frame.writeStream.format("parquet").option("path", self._output)
        run_to_end(sink.option("checkpointLocation", self._checkpoint), ENDS_WITHIN_S)

    def _stock(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format(STOCK).options(**self._to(), **options).load()

    def _ours(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format(OURS).options(**{**self._to(), **self._past(), **options}).load()

    def _to(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._churn.broker.bootstrap, **OPTIONS}

    def _past(self) -> dict[str, str]:
        return {**sealed_files(self._churn.broker), **self._choice.choice(WAYS)}

    @contextmanager
    def _killed(self, within_s: float) -> Iterator[None]:
        """Kill the broker during the block, at some moment of so many seconds."""
        after_s = self._choice.uniform(0, within_s)

        def kill() -> float:
            time.sleep(after_s)
            killed_s = time.monotonic()
            self._churn.kill()
            return killed_s

        with ThreadPoolExecutor(1) as killer:
            killing = killer.submit(kill)
            yield
            ended_s = time.monotonic()
            self._done["kills during reads"] += killing.result() < ended_s
        self._done["kills"] += 1


def rows_of(frame: DataFrame) -> list[Row]:
    """The rows, in any order."""
    table = frame.toArrow()
    return list(map(Row._make, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def _between(windows: Mapping[str, Iterable[tuple[int, int]]]) -> dict[str, str]:
    """The options of a source for these ranges of offsets."""
    starts = {topic: {str(at): one[0] for at, one in enumerate(some)} for topic, some in windows.items()}
    ends = {topic: {str(at): one[1] for at, one in enumerate(some)} for topic, some in windows.items()}
    return {"subscribe": ",".join(windows), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}
