"""`kafkawire-spark export`: each row of a topic is in its table once, after kills and races.

The tables are read with independent libraries: deltalake, pyiceberg, pyarrow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.applications.jobs.runs import (
    ONE,
    STOPPED,
    Run,
    begin,
    finished,
    run,
    run_and_kill,
    send,
    table_words,
    values,
)
from compat_tests.applications.jobs.stopped import GO, READY
from compat_tests.applications.spark.test_transactions import Writer
from compat_tests.clients.confluent.clients import Admin, create_topic, wait_until
from compat_tests.faults.campaign import SEED
from compat_tests.features.tiering.brokers import TieredKafkawire
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_pyspark
from spark_connectors.jobs.table_rows import RawForm
from testkit.lakes import KINDS, Lake, lake_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from compat_tests.harness.broker import Broker

SMALL = ("--file-size", "64KiB", "--option", "kafka.max.partition.fetch.bytes=32768")
ROWS = 1200  # of each of two partitions: eight files
SCHEMA = [{"name": "id", "type": "int64"}]


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return lake_of(request.param, tmp_path)


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """A topic of two partitions."""
    create_topic(broker, topic, partitions=2)
    for partition in range(2):
        send(broker, topic, values(ROWS, partition), partition)
    return topic


def words(broker: Broker, topic: str, lake: Lake, *more: str) -> list[str]:
    return ["export", "-b", broker.bootstrap, "--topic", topic, *table_words(lake, "--to"), *SMALL, *more]


def rows(lake: Lake, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.rows().select(list(columns)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def assert_all(lake: Lake, counts: Sequence[int] = (ROWS, ROWS)) -> None:
    expected = [
        (partition, offset, value)
        for partition, count in enumerate(counts)
        for offset, value in enumerate(values(count, partition))
    ]
    assert rows(lake, "partition", "offset", "value") == expected


def done(found: Run) -> Run:
    assert found.code == 0, found.stderr
    return found


def test_a_topic_becomes_a_table(broker: Broker, filled: str, lake: Lake) -> None:
    first = done(run(*words(broker, filled, lake)))
    assert_all(lake)
    assert (first.counts["rows"], first.counts["offsets"]) == (2 * ROWS, 2 * ROWS)
    assert first.counts["files"] == len(lake.table().files()) > 4
    headers = lake.rows().select(["offset", "key", "headers"]).to_pylist()
    for row in headers[:50]:
        number = row["offset"]
        assert row["key"] == b"k%d" % (number % 10)
        found = row["headers"] or None  # pyiceberg's reader makes an empty list of null
        assert found == ([{"key": "h", "value": b"%d" % number}] if number % 7 == 0 else None)
    nothing = done(run(*words(broker, filled, lake, *ONE)))
    assert (nothing.counts["rows"], nothing.counts["commits"]) == (0, 0)
    send(broker, filled, values(ROWS + 50)[ROWS:])
    assert done(run(*words(broker, filled, lake, "--dry-run"))).counts == {"offsets_to_export": 50}
    assert done(run(*words(broker, filled, lake, *ONE))).counts["rows"] == 50
    assert_all(lake, (ROWS + 50, ROWS))


@pytest.mark.parametrize(
    ("point", "number"), [("outcome", 1), ("before", 1), ("after", 1), ("before", 2), ("after", 2)]
)
def test_a_killed_export_can_be_continued(broker: Broker, filled: str, lake: Lake, point: str, number: int) -> None:
    """An export that was killed goes on, also if it was killed between data files and their commit."""
    asked = words(broker, filled, lake, *ONE)
    assert run(point, str(number), *asked, module=STOPPED).code == -signal.SIGKILL
    found = done(run(*asked))
    assert_all(lake)
    committed = number if point == "after" else number - 1
    assert (found.counts["rows"] < 2 * ROWS) == (point != "outcome" and committed > 0)


def test_an_export_killed_at_random_times_writes_each_row_once(broker: Broker, filled: str, tmp_path: Path) -> None:
    """An export with workers is killed at any time; its workers end, too."""
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    choice = random.Random(SEED)
    lake = lake_of("delta", tmp_path)
    asked = words(broker, filled, lake, "--workers", "2")
    codes = [run_and_kill(choice.uniform(0.5, 2.5), *asked).code for _ in range(4)]
    assert set(codes) <= {0, -signal.SIGKILL}
    done(run(*asked))
    assert_all(lake)


def test_a_sweep_removes_only_old_uncommitted_files_of_killed_exports(broker: Broker, filled: str, lake: Lake) -> None:
    """Files of killed exports are removed, but no committed or younger ones."""
    asked = words(broker, filled, lake, *ONE, "--sweep", "10d")
    assert run("before", "1", *asked, module=STOPPED).code == -signal.SIGKILL
    left = {str(path) for path in lake.directory.rglob("part-*.parquet")}
    assert len(left) == 2
    long_ago_s = time.time() - 20 * 86_400
    for path in left:
        os.utime(path, (long_ago_s, long_ago_s))
    assert done(run(*asked)).counts["swept"] == 2
    assert not left & {str(path) for path in lake.directory.rglob("part-*.parquet")}
    for found in lake.directory.rglob("part-*.parquet"):
        os.utime(found, (long_ago_s, long_ago_s))
    assert done(run(*asked)).counts["swept"] == 0
    assert_all(lake)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_export_stopped_by_a_signal_continues_at_its_next_run(
    broker: Broker, filled: str, tmp_path: Path, number: signal.Signals
) -> None:
    lake = lake_of("parquet", tmp_path)
    tmp = tmp_path / "race"
    tmp.mkdir()
    asked = words(broker, filled, lake, "--workers", "2")
    process = begin("race", str(tmp), *asked, module=STOPPED)
    wait_until(lambda: bool(list(tmp.glob(f"{READY}-*"))), "it does not come to a commit", 60)
    process.send_signal(number)
    assert finished(process).code not in (0, 2)
    done(run(*asked))
    assert_all(lake)


def test_racing_exporters_commit_once(broker: Broker, filled: str, lake: Lake, tmp_path: Path) -> None:
    asked = words(broker, filled, lake, *ONE)
    lake.table().create(RawForm().schema)
    tmp = tmp_path / "race"
    tmp.mkdir()
    racers = [begin("race", str(tmp), *asked, module=STOPPED) for _ in range(2)]
    wait_until(lambda: len(list(tmp.glob(f"{READY}-*"))) == 2, "they do not come to a commit", 60)
    (tmp / GO).touch()
    found = sorted((finished(racer) for racer in racers), key=lambda one: one.code)
    assert [one.code for one in found] == [0, 1], [one.stderr for one in found]
    assert found[1].stderr.startswith("export: Superseded: job ")
    assert found[1].stderr.count("\n") == 1
    assert_all(lake)


def json_values(count: int) -> list[bytes | None]:
    """Values of which every third one is a dead letter."""
    return [
        (None if number % 2 else b"{%d" % number) if number % 3 == 0 else b'{"id": %d}' % number
        for number in range(count)
    ]


def json_words(directory: Path, schema: Sequence[dict[str, str]] = SCHEMA) -> list[str]:
    path = directory / "schema.json"
    path.write_text(json.dumps(schema))
    return ["--form", "json", "--schema", str(path), *ONE]


def dead_of(lake: Lake) -> Lake:
    """The table of dead letters, in a directory of its own."""
    other = lake.directory / "dead"
    other.mkdir(exist_ok=True)
    return Lake(lake.kind, other)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize(("point", "number"), [("before", 1), ("after", 1), ("before", 2), ("after", 2)], ids=str)
def test_each_row_of_json_is_in_one_of_two_tables(
    broker: Broker, topic: str, tmp_path: Path, kind: str, point: str, number: int
) -> None:
    """Rows and dead letters are complete after kills: the first commit is that of the letters, the second that of the
    rows."""
    create_topic(broker, topic)
    sent = json_values(300)
    send(broker, topic, sent[:200])
    lake = lake_of(kind, tmp_path)
    dead = dead_of(lake)
    asked = words(broker, topic, lake, *json_words(tmp_path), "--dead-letters", f"{kind}:{dead.place}")
    assert run(point, str(number), *asked, module=STOPPED).code == -signal.SIGKILL
    send(broker, topic, sent[200:])
    done(run(*asked))
    assert rows(lake, "id", "_offset") == [(number, number) for number in range(300) if number % 3]
    letters = [(number, sent[number]) for number in range(0, 300, 3)]
    found = sorted((row["offset"], row["value"]) for row in dead.rows().to_pylist())
    assert found == letters
    assert {row["reason"] for row in dead.rows().to_pylist()} >= {"null value"}


def test_dead_letters_lie_beside_their_table(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic)
    send(broker, topic, json_values(9))
    for kind in KINDS:
        lake = lake_of(kind, tmp_path / kind)
        lake.directory.mkdir()
        found = done(run(*words(broker, topic, lake, *json_words(tmp_path))))
        assert (found.counts["rows"], found.counts["dead_letters"]) == (6, 3)
        assert found.report["asked"]["table_of_dead_letters"].endswith("~dlq")


def test_a_column_more(broker: Broker, topic: str, tmp_path: Path) -> None:
    """A new column is added to the table first; older rows have no value in it."""
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType

    create_topic(broker, topic)
    send(broker, topic, [b'{"id": 1}'])
    lake = lake_of("delta", tmp_path)
    done(run(*words(broker, topic, lake, *json_words(tmp_path))))
    send(broker, topic, [b'{"id": 2, "city": "Bern"}'])
    more = json_words(tmp_path, [*SCHEMA, {"name": "city", "type": "string"}])
    refused = run(*words(broker, topic, lake, *more))
    assert (refused.code, refused.stderr) == (2, "export: rows do not fit the table: the table has no column city\n")
    DeltaTable(lake.place).alter.add_columns(Field("city", PrimitiveType("string")))
    done(run(*words(broker, topic, lake, *more)))
    assert rows(lake, "id", "city") == [(1, None), (2, "Bern")]


def test_a_topic_that_was_created_again_is_refused(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic)
    send(broker, topic, values(10))
    lake = lake_of("parquet", tmp_path)
    done(run(*words(broker, topic, lake, *ONE)))
    Admin(broker).delete(topic)
    wait_until(lambda: topic not in Admin(broker).topics(), "it is there still")
    create_topic(broker, topic)
    send(broker, topic, values(20))
    refused = run(*words(broker, topic, lake, *ONE))
    assert refused.code == 2
    assert "it was deleted and created again" in refused.stderr
    assert done(run(*words(broker, topic, lake, *ONE, "--job", "second"))).counts["rows"] == 20


def test_aborted_records_are_not_exported_with_read_committed(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, partitions=2)
    writer = Writer(broker, topic)
    writer.commit(5, 0, 1)
    writer.abort(4, 0, 1)
    writer.plain(3, 1)
    lake = lake_of("parquet", tmp_path)
    committed = ("--option", "kafka.isolation.level=read_committed")
    found = done(run(*words(broker, topic, lake, *ONE, *committed)))
    assert found.counts["rows"] == len(lake.rows()) == 13
    assert done(run(*words(broker, topic, lake, *ONE, *committed))).counts["commits"] == 0


def test_from_the_end_on(broker: Broker, filled: str, tmp_path: Path) -> None:
    """The start position is remembered, although nothing was exported."""
    lake = lake_of("delta", tmp_path)
    assert done(run(*words(broker, filled, lake, *ONE, "--starting", "latest"))).counts["rows"] == 0
    send(broker, filled, values(3))
    assert done(run(*words(broker, filled, lake, *ONE))).counts["rows"] == 3
    assert [offset for offset, *_ in rows(lake, "offset")] == [ROWS, ROWS + 1, ROWS + 2]


def test_segments_are_read_past_the_broker(topic: str, tmp_path: Path) -> None:
    lake = lake_of("parquet", tmp_path)
    with Kafkawire(tmp_path / "broker") as own:
        create_topic(own, topic, partitions=2, config={"segment.bytes": str(1 << 20)})
        for partition in range(2):
            send(own, topic, values(3 * 4096, partition), partition)
        segments = ("--option", f"segments={own.http_url}", "--option", "segments.files=true")
        done(run(*words(own, topic, lake, *segments, "--file-size", "512KiB")))
    assert_all(lake, (3 * 4096, 3 * 4096))


def test_a_tier_is_exported_without_a_broker(topic: str, tmp_path: Path) -> None:
    """A tier is exported without a broker, and the rest of the topic by the same job when there is a broker."""
    lake = lake_of("delta", tmp_path)
    count = 3 * 4096
    with TieredKafkawire(tmp_path) as tiered:
        config = {"remote.storage.enable": "true", "retention.ms": "-1", "segment.bytes": str(1 << 20)}
        create_topic(tiered, topic, config=config)
        send(tiered, topic, values(count))
        objects = "tier/*/*/0/*-*-*-*"
        wait_until(lambda: len(list(tmp_path.glob(objects))) >= 2, "nothing is copied", 60)
    by_broker = words(tiered, topic, lake, *ONE)
    by_tier = [word for word in by_broker if word not in ("-b", tiered.bootstrap)]
    found = done(run(*by_tier, "--option", f"segments=file://{tmp_path}/tier"))
    assert 0 < found.counts["rows"] < count
    with tiered:
        assert done(run(*by_broker)).counts["rows"] == count - found.counts["rows"]
    assert_all(lake, (count,))


def test_executors_of_spark_do_the_tasks(broker: Broker, filled: str, tmp_path: Path) -> None:
    need_pyspark()
    lake = lake_of("delta", tmp_path)
    found = done(run(*words(broker, filled, lake, "--spark")))
    assert found.counts["rows"] == 2 * ROWS
    assert_all(lake)
