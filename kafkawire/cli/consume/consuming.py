"""The work of `kafkawire consume`: first offsets, output, end.

Records are written as they arrive, in pieces of bounded size, so that a slow reader makes the brokers wait.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from engine.api import Isolation
from kafkawire.cli.common.cluster_command import printable
from kafkawire.cli.common.data_formats import dump_json, encode_document, encode_text
from kafkawire.cli.common.streaming import EXIT_INTERRUPTED, Output, Progress, is_long_work, run_until_stopped
from kafkawire.cli.groups.offset_reset import parse_datetime_ms
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Connect, connect_tcp, parse_bootstrap
from kafkawire.client.consumer import WAIT_MAX_MS, Batch, ConsumedRecord, Consumer
from kafkawire.client.errors import ClientError
from kafkawire.client.offsets import EARLIEST, LATEST, NO_OFFSET, known_offsets, known_partitions
from kafkawire.client.partitions import TopicPartition

WRITE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Start:
    """First position to read: a time in ms, or an offset. A negative offset counts from the end."""

    time_ms: int | None = None
    offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Start:
        """Parse an offset, `start`, `end` or `@TIME`. Raises ValueError."""
        if text in ("start", "end"):
            return cls(time_ms=EARLIEST if text == "start" else LATEST)
        if re.fullmatch(r"-?\d{1,18}", text):
            return cls(offset=int(text))
        if re.fullmatch(r"@\d{1,18}", text):
            return cls(time_ms=int(text[1:]))
        if text.startswith("@"):
            return cls(time_ms=parse_datetime_ms(text[1:]))
        raise ValueError(f"{text!r} is not an offset, start, end or @TIME")


@dataclass(frozen=True, slots=True)
class Writing:
    """Output format of records."""

    as_json: bool = False
    key_format: str = "text"
    value_format: str = "text"
    key_separator: str | None = None

    def line(self, record: ConsumedRecord) -> bytes:
        """The output line of a record. Raises ClientError if the record does not have the format."""
        try:
            return self._json(record) if self.as_json else self._text(record)
        except ValueError as error:
            raise ClientError(f"{record.partition} at offset {record.offset}: {error}") from None

    def _text(self, record: ConsumedRecord) -> bytes:
        value = b"" if record.value is None else encode_text(record.value, self.value_format)
        if self.key_separator is None:
            return value + b"\n"
        key = b"" if record.key is None else encode_text(record.key, self.key_format)
        return key + os.fsencode(self.key_separator) + value + b"\n"

    def _json(self, record: ConsumedRecord) -> bytes:
        document = {
            "topic": record.partition.topic,
            "partition": record.partition.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if record.is_log_append_time else "CreateTime",
            "key": encode_document(record.key, self.key_format),
            "value": encode_document(record.value, self.value_format),
            "headers": [
                {"key": encode_document(one.key, "text"), "value": encode_document(one.value, "text")}
                for one in record.headers
            ],
        }
        return dump_json(document) + b"\n"


class Consumption:
    """A run of the command."""

    def __init__(
        self, cluster: Cluster, output: Output, writing: Writing, progress: Progress, timeout_s: float
    ) -> None:
        self._cluster = cluster
        self._output = output
        self._writing = writing
        self._progress = progress
        self._timeout_s = timeout_s

    async def run(
        self,
        topic: str,
        partitions: Collection[int],
        start: Start,
        isolation: Isolation,
        *,
        count_max: int | None,
        exit_at_end: bool,
    ) -> None:
        """Read from `start` until the end, `count_max` records or a cancellation.

        Raises ClientError, BrokenPipeError.
        """
        begin = partial(_begin, self._cluster, topic, partitions, start, isolation)
        positions, ends = await self._cluster.run_within(self._timeout_s, begin)
        consumer = Consumer(self._cluster, positions, remark, isolation)
        while self._progress.records != count_max:
            if exit_at_end:
                consumer.drop_finished(ends)
            if not consumer.positions:
                return
            batches = await self._cluster.run_within(self._timeout_s + WAIT_MAX_MS / 1000, consumer.poll)
            await self._write(batches, ends if exit_at_end else {}, count_max)

    async def _write(
        self, batches: Collection[Batch], ends: Mapping[TopicPartition, int], count_max: int | None
    ) -> None:
        piece = bytearray()
        count = 0
        problem: ClientError | None = None
        try:
            for record in (record for batch in batches for record in batch.records()):
                if self._progress.records + count == count_max:
                    break
                if record.offset >= ends.get(record.partition, record.offset + 1):
                    continue
                piece += self._writing.line(record)
                count += 1
                if len(piece) >= WRITE_BYTES:
                    await self._flush(count, piece)
                    piece, count = bytearray(), 0
        except ClientError as error:
            problem = error
        await self._flush(count, piece)
        if problem is not None:
            raise problem

    async def _flush(self, count: int, piece: bytearray) -> None:
        if count:
            await self._output.write(piece)
            self._progress.add(count, len(piece))


async def _begin(
    cluster: Cluster, topic: str, only: Collection[int], start: Start, isolation: Isolation
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offset to read and the end offset of each partition."""
    found = await known_partitions(cluster, topic)
    wanted = [TopicPartition(topic, number) for number in sorted(set(only))] or found
    for one in wanted:
        if one not in found:
            raise ClientError(f"topic {topic} has no partition {one.partition}")
    starts = await known_offsets(cluster, wanted, EARLIEST)
    ends = await known_offsets(cluster, wanted, LATEST, isolation)
    if start.time_ms is not None:
        at_time = await known_offsets(cluster, wanted, start.time_ms, isolation)
        return {one: ends[one] if at_time[one] == NO_OFFSET else at_time[one] for one in wanted}, ends
    assert start.offset is not None
    return {one: _bounded(one, start.offset, starts[one], ends[one]) for one in wanted}, ends


def _bounded(one: TopicPartition, offset: int, start: int, end: int) -> int:
    if offset < 0:
        return max(start, end + offset)
    bounded = min(max(offset, start), end)
    if bounded != offset:
        remark(f"{one} has offsets from {start} to {end}: {bounded} is taken")
    return bounded


def remark(text: str) -> None:
    click.echo(printable(text), err=True)


def consume(
    bootstrap: str,
    connect: Connect | None,
    *,
    topic: str,
    partitions: Collection[int],
    offset: str,
    count_max: int | None,
    exit_at_end: bool,
    isolation: str,
    key_separator: str | None,
    key_format: str,
    value_format: str,
    progress: bool | None,
    output: str,
    timeout_s: float,
) -> int:
    """Run the command and return the exit code."""
    try:
        start = Start.parse(offset)
    except ValueError as error:
        raise click.UsageError(f"--offset: {error}") from None
    writing = Writing(output == "json", key_format, value_format, key_separator)
    shown = Progress(is_long_work(sys.stdout) if progress is None else progress)

    async def work(written: Output) -> None:
        async with Cluster(parse_bootstrap(bootstrap), connect or connect_tcp) as cluster:
            run = Consumption(cluster, written, writing, shown, timeout_s)
            level = Isolation[isolation.upper()]
            await run.run(topic, partitions, start, level, count_max=count_max, exit_at_end=exit_at_end)

    try:
        written = Output()
        finished = run_until_stopped(partial(work, written), shown, written.has_no_reader)
    except ClientError as error:
        raise click.ClickException(printable(str(error))) from None
    return 0 if finished else EXIT_INTERRUPTED
