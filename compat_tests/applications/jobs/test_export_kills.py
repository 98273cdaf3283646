"""An export that is killed again and again, wherever it is: each row of the topic is in the table once.

`KAFKAWIRE_CHAOS_EXPORT_ROWS` and `KAFKAWIRE_CHAOS_EXPORT_KILLS` set the size, `KAFKAWIRE_CHAOS_SEED` the seed.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from compat_tests.applications.jobs.runs import STOPPED, run, table_words
from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.faults.campaign import SEED
from testkit.lakes import KINDS, Lake, lake_of
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

ROWS: Final = int(os.environ.get("KAFKAWIRE_CHAOS_EXPORT_ROWS", "24000"))
KILLS: Final = int(os.environ.get("KAFKAWIRE_CHAOS_EXPORT_KILLS", "6"))
PARTITIONS: Final = 2
VALUE_BYTES: Final = 100
RANDOM_BYTES: Final = 60
FILES_PER_RUN: Final = 20  # so many are committed before a kill at most
FILE_BYTES: Final = ROWS * RANDOM_BYTES // (FILES_PER_RUN * (KILLS + 1))
LARGE_BYTES: Final = 1 << 20
FETCH_BYTES: Final = max(FILE_BYTES // 8, 8192)  # a task fills its file in such steps
FLUSH_ROWS: Final = 50_000
CALLS: Final = {"delta": 2000, "iceberg": 45_000, "parquet": 3000}  # of a commit of 18 files, more or less
STEPS: Final = ("read", "write", "outcome", "before", "within", "after")


def value(choice: random.Random, offset: int) -> bytes:
    """A value that begins with its offset and does not compress well."""
    return b"%010d" % offset + choice.randbytes(RANDOM_BYTES) + bytes(VALUE_BYTES - RANDOM_BYTES - 10)


def fill(broker: Broker, topic: str, choice: random.Random) -> None:
    """Write the topic in small batches, so that fetches have several."""
    create_topic(broker, topic, partitions=PARTITIONS)
    client = producer(broker, batch_size=FETCH_BYTES // 8)
    for number in range(ROWS):
        offset, partition = divmod(number, PARTITIONS)
        client.produce(topic, value(choice, offset), b"%d" % (offset % 1000), partition)
        if number % FLUSH_ROWS == 0:
            flush(client)
    flush(client)


def kills(choice: random.Random, kind: str) -> Iterator[tuple[str, str]]:
    """The kills: each step in turn, with the number of the commit, or the count of events before it."""
    steps = [STEPS[number % len(STEPS)] for number in range(KILLS)]
    choice.shuffle(steps)
    for step in steps:
        if step == "within":
            yield step, f"{choice.randint(1, 2)}:{choice.randrange(1, CALLS[kind])}"
        elif step in ("before", "after"):
            yield step, str(choice.randint(1, 2))
        else:
            yield step, str(choice.randint(1, 8 if step == "outcome" else 40))


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_killed_at_each_step_has_each_row_once(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    choice = random.Random(f"{SEED} {kind}")
    lake = lake_of(kind, tmp_path)
    fill(broker, topic, choice)
    told = ("-b", broker.bootstrap, "--topic", topic)
    asked = ("export", *told, *table_words(lake, "--to"), "--workers", "2", "--file-size", f"{FILE_BYTES}B")
    asked = (*asked, "--option", f"kafka.max.partition.fetch.bytes={FETCH_BYTES}")
    points = list(kills(choice, kind))
    for point in points:
        assert run(*point, *asked, module=STOPPED).code == -signal.SIGKILL, f"{point} was not reached"
    last = run(*asked)
    assert last.code == 0, last.stderr
    verified = run("verify", *told, *table_words(lake, "--table"))
    assert (verified.code, verified.counts["table_rows"]) == (0, ROWS), verified.stderr
    assert_all(lake)
    assert_sizes(lake)
    files = len(lake.table().files())
    steps = ", ".join(f"{count} x {step}" for step, count in sorted(Counter(step for step, _ in points).items()))
    left = last.counts["rows"]
    note_for_ledger(f"{kind}: seed {SEED}, {ROWS} rows, {files} files, kill -9 at {steps}, {left} rows left; equal. ")


def assert_all(lake: Lake) -> None:
    """Check the table with a reader that does not know kafkawire."""
    order = [("partition", "ascending"), ("offset", "ascending")]
    found = lake.rows().select(["partition", "offset", "value"]).sort_by(order)
    assert found.num_rows == ROWS
    counts = [len(range(partition, ROWS, PARTITIONS)) for partition in range(PARTITIONS)]
    offsets = pa.chunked_array([pa.array(np.arange(count)) for count in counts])
    assert found["offset"].equals(offsets)
    told = pc.binary_slice(found["value"], 0, 10).cast(pa.string()).cast(pa.int64())
    assert told.equals(offsets)


def assert_sizes(lake: Lake) -> None:
    """Check that file sizes are between 0.5 and 1.5 times the wanted size, except for the last files of a partition.
    Files of some KiB are not checked: half of such a file is about its columns."""
    if FILE_BYTES < LARGE_BYTES:
        return
    sizes = [Path(one.removeprefix("file://")).stat().st_size for one in lake.table().files()]
    assert max(sizes) <= 1.5 * FILE_BYTES
    assert sum(size < 0.5 * FILE_BYTES for size in sizes) <= PARTITIONS
