"""Rows that a task returns: those of its range that are visible to its reader."""

from __future__ import annotations

import pickle

import pytest

from engine.api import Outcome
from spark_connectors.records.columns import schema_of
from spark_connectors.source.options import HEADERS
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.reading import ClusterCache, read_range
from spark_connectors.source.schema import declared
from spark_connectors.source.tests.world import FIRST_MS, World
from spark_connectors.wire import TopicPartition


def read(world: World, start: int, end: int, **options: str) -> list[tuple[object, ...]]:
    chosen = world.options(**options)
    wanted = OffsetRange(TopicPartition("t", 0), world.topics["t"].id, start, end)
    batches = list(read_range(chosen, wanted, schema_of(chosen.columns), cluster=world.cluster(chosen)))
    assert all(batch.num_rows for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_rows() -> None:
    world = World()
    world.topic().logs[0].append(b"a", b"b", b"c")
    rows = read(world, 1, 3)
    assert [(*row[:5], row[6]) for row in rows] == [(b"k1", b"b", "t", 0, 1, 0), (b"k2", b"c", "t", 0, 2, 0)]
    assert [row[5].timestamp() * 1000 for row in rows] == [FIRST_MS + 10, FIRST_MS + 20]  # type: ignore[attr-defined]
    assert read(world, 0, 1, columns="value,headers") == [(b"a", None)]


SEEN = {"read_committed": [0, 3, 7], "read_uncommitted": [0, 1, 3, 5, 7]}


@pytest.mark.parametrize("isolation", SEEN)
@pytest.mark.parametrize("size_bytes", ["50", "5000"])
def test_transactions(isolation: str, size_bytes: str) -> None:
    """An aborted transaction, a committed one, and another aborted one; also with a start behind the first."""
    world = World()
    log = world.topic().logs[0]
    log.append(b"v")
    for outcome in (Outcome.ABORT, Outcome.COMMIT, Outcome.ABORT):
        log.decide(7, outcome, log.send(7, b"v"))
    log.append(b"v")
    options = {"kafka.isolation.level": isolation, "kafka.max.partition.fetch.bytes": size_bytes, "columns": "offset"}
    assert [row[0] for row in read(world, 0, log.end, **options)] == SEEN[isolation]
    assert [row[0] for row in read(world, 2, log.end, **options)] == [one for one in SEEN[isolation] if one >= 2]


def test_connections_stay_where_they_are() -> None:
    world = World()
    kept = ClusterCache()
    options, others = world.options(), world.options(**{"kafka.client.id": "x"})
    first = kept.of(options)
    assert kept.of(options) is first
    assert kept.of(others) is not first
    copy = pickle.loads(pickle.dumps(kept))
    assert copy.of(others) is not kept.of(others)
    copy.close()
    kept.close()


def test_columns_are_declared_as_arrow_has_them() -> None:
    assert declared(["offset", HEADERS]) == "`offset` bigint, `headers` array<struct<key: string, value: binary>>"
    assert schema_of(["offset", HEADERS]).names == ["offset", "headers"]
