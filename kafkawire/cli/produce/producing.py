"""The work of `kafkawire produce`: parse, send and count one piece of input at a time.

Only one piece is in flight, so that a slow broker makes the input wait. The first refusal ends the run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import click

from engine.batches.batch import Codec, Record
from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.common.data_formats import decode_text
from kafkawire.cli.common.streaming import Input, Progress, is_long_work, run_and_report
from kafkawire.cli.produce.record_input import Parser, Reading, parse_header
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Connect, connect_tcp, parse_bootstrap
from kafkawire.client.errors import ClientError, Refusal
from kafkawire.client.offsets import known_partitions
from kafkawire.client.partitioner import partition_of_key
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.producer import Producer, in_rounds, record_size_max_bytes
from kafkawire.client.topics import created_partitions


@dataclass(slots=True)
class Stored:
    """Records that this command stored in one partition."""

    records: int
    first_offset: int
    last_offset: int


class Production:
    """A run of the command. `stored` has the acknowledged records."""

    def __init__(self, topic: str, parser: Parser, codec: Codec, partition: int | None, timeout_s: float) -> None:
        self.stored: dict[TopicPartition, Stored] = {}
        self._topic = topic
        self._parser = parser
        self._codec = codec
        self._partition = partition
        self._timeout_s = timeout_s

    async def run(self, cluster: Cluster, source: Input, progress: Progress, *, create: bool) -> None:
        """Send all input. Raises ClientError."""
        partitions = await cluster.run_within(self._timeout_s, partial(self._partitions, cluster, create=create))
        in_turns = cycle(partitions)
        producer = Producer(cluster, self._codec)
        count = partial(self._count, progress)
        while True:
            piece = await source.read()
            records, problem = self._parser.take(piece)
            for batches in in_rounds(_placed(records, partitions, next(in_turns))):
                outcomes = await cluster.run_within(self._timeout_s, partial(producer.send, batches, count))
                for one, outcome in outcomes.items():
                    if isinstance(outcome, Refusal):
                        raise ClientError(f"{one}: {outcome}")
            if problem is not None:
                raise ClientError(str(problem))
            if not piece:
                return

    async def _partitions(self, cluster: Cluster, *, create: bool) -> list[TopicPartition]:
        """The partitions to send to."""
        if create:
            found, _ = await created_partitions(cluster, self._topic)
        else:
            found = await known_partitions(cluster, self._topic)
        if self._partition is None:
            return found
        only = TopicPartition(self._topic, self._partition)
        if only not in found:
            raise ClientError(f"topic {self._topic} has no partition {self._partition}")
        return [only]

    def _count(self, progress: Progress, one: TopicPartition, offset: int, batch: Sequence[Record]) -> None:
        """Count acknowledged records from `offset` on, so that the report is right however the run ends."""
        stored = self.stored.setdefault(one, Stored(0, offset, offset))
        stored.records += len(batch)
        stored.last_offset = offset + len(batch) - 1
        progress.add(len(batch), sum(map(record_size_max_bytes, batch)))

    def report(self) -> Report:
        """Report of the acknowledged records."""
        rows = sorted(self.stored.items())
        return Report(
            document={
                "topic": self._topic,
                "records": sum(one.records for _, one in rows),
                "partitions": [
                    {
                        "partition": partition.partition,
                        "records": one.records,
                        "first_offset": one.first_offset,
                        "last_offset": one.last_offset,
                    }
                    for partition, one in rows
                ],
            },
            columns=("PARTITION", "RECORDS", "FIRST", "LAST"),
            rows=[(partition.partition, one.records, one.first_offset, one.last_offset) for partition, one in rows],
        )


def _placed(
    records: Sequence[Record], partitions: Sequence[TopicPartition], without_key: TopicPartition
) -> Iterator[tuple[TopicPartition, Record]]:
    for record in records:
        if record.key is None:
            yield without_key, record
        else:
            yield partitions[partition_of_key(record.key, len(partitions))], record


def produce(
    bootstrap: str,
    connect: Connect | None,
    *,
    topic: str,
    output: str,
    timeout_s: float,
    partition: int | None,
    compression: str,
    create: bool,
    progress: bool | None,
    **given: Any,
) -> int:
    """Run the command and return the exit code."""
    parser = Parser(_reading(**given), lambda: time.time_ns() // 1_000_000)
    production = Production(topic, parser, Codec[compression.upper()], partition, timeout_s)
    shown = Progress(is_long_work(sys.stdin) if progress is None else progress)

    async def work() -> None:
        async with Cluster(parse_bootstrap(bootstrap), connect or connect_tcp) as cluster:
            await production.run(cluster, Input(), shown, create=create)

    return run_and_report(work, shown, production.report, as_json=output == "json")


def _reading(
    *,
    key: str | None,
    key_separator: str | None,
    headers: Sequence[str],
    key_format: str,
    value_format: str,
    empty_is_null: bool,
    input_form: str,
) -> Reading:
    try:
        fixed = None if key is None else decode_text(os.fsencode(key), key_format)
    except ValueError as error:
        raise click.UsageError(f"--key is {error}") from None
    return Reading(
        key_format=key_format,
        value_format=value_format,
        key=fixed,
        key_separator=None if key_separator is None else os.fsencode(key_separator),
        headers=tuple(map(parse_header, headers)),
        empty_is_null=empty_is_null,
        as_json=input_form == "json",
    )
