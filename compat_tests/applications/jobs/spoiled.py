"""Topics for audits and comparisons, their places, and damage to their bytes and rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from compat_tests.applications.spark.queries import FIRST_MS
from compat_tests.clients.confluent.clients import flush, producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compat_tests.harness.broker import Broker
    from compat_tests.harness.kafkawire_broker import Kafkawire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def where(broker: Broker, topic: str) -> list[str]:
    return ["-b", broker.bootstrap, "--topic", topic]


def sealed(broker: Kafkawire) -> list[str]:
    """The options with which sealed segments are read from the broker's files."""
    return ["--option", f"segments={broker.http_url}", "--option", "segments.files=true"]


def fill(broker: Broker, topic: str, partitions: int, count: int, value: Callable[[int], bytes] | None = None) -> None:
    """So many records, in every codec, in batches of any size; values that compress little, if none are said."""
    choice = random.Random(11)
    for turn, codec in enumerate(CODECS):
        client = producer(broker, compression_type=codec, batch_num_messages=choice.choice([1, 50, 5000]))
        for number in range(turn, count, len(CODECS)):
            headers = [("h", b"%d" % number)] if number % 3 == 0 else None
            client.produce(
                topic,
                choice.randbytes(1000) if value is None else value(number),
                b"k%d" % (number % 50),
                partition=number % partitions,
                headers=headers,
                timestamp=FIRST_MS + choice.randrange(1000),
            )
        flush(client)


def flip(path: Path, position: int) -> None:
    """Flip a bit of a file in place, so that a process with the file open sees it too."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def segments_of(broker: Broker, topic: str, partition: int = 0) -> Sequence[Path]:
    return sorted((broker.data_dir / f"{topic}-{partition}").glob("*.log"))


def change_rows(folder: Path, partition: int, offset: int, change: Callable[[list[dict[str, Any]], int], None]) -> None:
    """Change the file of a table that has a row. `change` gets the rows of the file, and the position of that row."""
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        rows = table.to_pylist()
        found = [at for at, row in enumerate(rows) if (row["partition"], row["offset"]) == (partition, offset)]
        if found:
            change(rows, found[0])
            pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
            return
    raise AssertionError(f"no file has offset {offset} of partition {partition}")
