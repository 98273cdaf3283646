"""Options of the source: those of Spark's kafka source, by their names, and `columns`.

They are checked when a query is created, as by KafkaSourceProvider. Both refuse the same combinations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from spark_connectors.offsets import MalformedOffsets, numbered
from spark_connectors.options import (
    KAFKA_PREFIX,
    OptionRefused,
    Options,
    bootstrap_of,
    duration_s,
    int32,
    positive,
    settings_of,
    truth,
    whole_number,
)
from spark_connectors.source.segment_options import SegmentOptions, segment_options
from spark_connectors.wire import Address, Settings, TopicPartition

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
MAX_TRIGGER_DELAY_S: Final = 900.0
POLL_TIMEOUT_S: Final = 120.0  # spark.network.timeout's default, which workers cannot see


class Edge(IntEnum):
    """An end of a partition, in the numbers of ListOffsets and of startingOffsets."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True)
class AtOffsets:
    """An offset in each partition; the numbers of Edge are allowed."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamps:
    """The first record at or after a time in ms, with a time for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamp:
    """The first record of each partition at or after this time in ms."""

    timestamp_ms: int


Limit = Edge | AtOffsets | AtTimestamps | AtTimestamp


@dataclass(frozen=True)
class Selection:
    """Selected partitions: all of these topics, all of topics whose name matches the pattern, or exactly these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class FetchSizes:
    """Settings of Kafka's consumer with these names. The default of `partition_max_bytes` is larger than Kafka's."""

    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_wait_ms: int = 500
    partition_max_bytes: int = 8 << 20


@dataclass(frozen=True)
class SourceOptions:
    """Options of one reader. Without `bootstrap` there is no broker: all segments are in a store."""

    bootstrap: tuple[Address, ...]
    settings: Settings
    selection: Selection
    starting: Limit
    ending: Limit
    columns: tuple[str, ...]
    fetch: FetchSizes
    is_committed_only: bool
    fails_on_data_loss: bool
    has_filters_pushed: bool  # a batch may leave out rows by pushed filters
    is_late_start_latest: bool  # a starting time after the last record means the end, and is no error
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    poll_timeout_s: float
    lookup_attempts: int
    lookup_pause_s: float
    segments: SegmentOptions | None


def source_options(raw: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Raises OptionRefused."""
    options = Options(raw)
    options.accept(["groupIdPrefix"])  # no group is joined
    selection = _selection(options)
    ending = _limit(options, "ending", Edge.LATEST)
    starting = _limit(options, "starting", Edge.LATEST if is_stream else Edge.EARLIEST)
    if is_stream:
        _refuse_ending(options)
    else:
        _check_batch(starting, ending)
    segments = segment_options(options)
    found = SourceOptions(
        bootstrap=_bootstrap(options, segments, is_stream=is_stream),
        settings=settings_of(options),
        selection=selection,
        starting=starting,
        ending=ending,
        columns=_columns(options),
        fetch=_fetch_sizes(options),
        is_committed_only=options.parsed(f"{KAFKA_PREFIX}isolation.level", _isolation, False),
        fails_on_data_loss=options.parsed("failOnDataLoss", truth, True),
        has_filters_pushed=options.parsed("pushDownPredicate", truth, False),
        is_late_start_latest=options.parsed("startingOffsetsByTimestampStrategy", _strategy, False),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_positive(options, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_positive(options, "minOffsetsPerTrigger"),
        max_trigger_delay_s=options.parsed("maxTriggerDelay", duration_s, MAX_TRIGGER_DELAY_S),
        poll_timeout_s=options.parsed("kafkaConsumer.pollTimeoutMs", positive, int(POLL_TIMEOUT_S * 1000)) / 1000,
        lookup_attempts=options.parsed("fetchOffset.numRetries", positive, 3),
        lookup_pause_s=options.parsed("fetchOffset.retryIntervalMs", whole_number, 1000) / 1000,
        segments=segments,
    )
    if is_stream and found.has_filters_pushed:
        raise OptionRefused("option pushDownPredicate is for batches: Spark tells no stream of its filters")
    least, most = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionRefused(f"option minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, {most}")
    options.finish()
    return found


def _bootstrap(options: Options, segments: SegmentOptions | None, *, is_stream: bool) -> tuple[Address, ...]:
    """Addresses of brokers; none are needed by a batch query that reads from a store only."""
    needs_none = segments is not None and not segments.brokers and not is_stream
    if needs_none and options.text(f"{KAFKA_PREFIX}bootstrap.servers") is None:
        return ()
    return bootstrap_of(options)


def _positive(options: Options, name: str) -> int | None:
    return options.parsed(name, positive, None)


def _selection(options: Options) -> Selection:
    parsers: dict[str, Callable[[str], Selection]] = {
        "subscribe": _topics,
        "subscribePattern": _pattern,
        "assign": _assigned,
    }
    given = [name for name in parsers if options.text(name) is not None]
    if len(given) != 1:
        raise OptionRefused(f"exactly one of the options {', '.join(parsers)} is required, given are {len(given)}")
    return options.parsed(given[0], parsers[given[0]], Selection())


def _topics(text: str) -> Selection:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("it names no topic")
    return Selection(topics=names)


def _pattern(text: str) -> Selection:
    if not text:
        raise ValueError("the pattern is empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no pattern of Python's, {error}: {text}") from None
    return Selection(pattern=text)


def _assigned(text: str) -> Selection:
    data = _json(text, '{"topicA":[0,1],"topicB":[0,1]}')
    try:
        found = {TopicPartition(topic, number) for topic, numbers in data.items() for number in numbers}
    except TypeError:
        found = set()
    if not found or any(type(one.partition) is not int or one.partition < 0 for one in found):
        raise ValueError(f'expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}')
    return Selection(partitions=tuple(sorted(found)))


def _limit(options: Options, side: str, default: Edge) -> Limit:
    """Parse a limit. The order of precedence is that of KafkaSourceProvider.getKafkaOffsetRangeLimit."""
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    parsers: tuple[Callable[[str], Limit], ...] = (_timestamp, _timestamps, _offsets)
    limit: Limit = default
    for name, parse in zip(names, parsers, strict=True):
        if options.text(name) is not None:
            options.accept(names)  # the first given one counts
            return options.parsed(name, parse, limit)
    return limit


def _timestamp(text: str) -> Limit:
    return AtTimestamp(whole_number(text))


def _timestamps(text: str) -> Limit:
    return AtTimestamps(_by_partition(text))


def _offsets(text: str) -> Limit:
    if text.upper() in Edge.__members__:
        return Edge[text.upper()]
    found = _by_partition(text)
    if any(offset < Edge.EARLIEST for offset in found.values()):
        raise ValueError("an offset is below -2")
    return AtOffsets(found)


def _by_partition(text: str) -> dict[TopicPartition, int]:
    expected = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    data = _json(text, expected)
    try:
        return {
            TopicPartition(topic, partition): number
            for topic, value in data.items()
            for partition, number in numbered(topic, value)
        }
    except MalformedOffsets:
        raise ValueError(f"expected e.g. {expected}, got {text}") from None


def _json(text: str, expected: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ValueError(f"expected e.g. {expected}, got {text}")
    return data


def _refuse_ending(options: Options) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if options.text(name) is not None:
            raise OptionRefused(f"option {name} is for batches: a stream has no end")


def _check_batch(starting: Limit, ending: Limit) -> None:
    if starting is Edge.LATEST or (isinstance(starting, AtOffsets) and Edge.LATEST in starting.offsets.values()):
        raise OptionRefused("option startingOffsets: a batch cannot start at the latest offset")
    if ending is Edge.EARLIEST or (isinstance(ending, AtOffsets) and Edge.EARLIEST in ending.offsets.values()):
        raise OptionRefused("option endingOffsets: a batch cannot end at the earliest offset")
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order("Offsets", starting.offsets, ending.offsets)
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order("OffsetsByTimestamp", starting.timestamps, ending.timestamps)


def _check_order(name: str, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    if starts.keys() != ends.keys():
        raise OptionRefused(f"options starting{name} and ending{name} name different partitions")
    for partition, start in starts.items():
        if start > ends[partition] >= 0:
            raise OptionRefused(f"options starting{name} and ending{name}: {partition} ends before it starts")


def _columns(options: Options) -> tuple[str, ...]:
    has_headers = options.parsed("includeHeaders", truth, False)
    every = (*COLUMNS, HEADERS) if has_headers else COLUMNS
    chosen = options.text("columns")
    if chosen is None:
        return every
    by_name = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    names = [part.strip() for part in chosen.split(",") if part.strip()]
    unknown = [name for name in names if name.lower() not in by_name]
    if not names or unknown or len({name.lower() for name in names}) < len(names):
        raise OptionRefused(f"option columns: expected some of {', '.join((*COLUMNS, HEADERS))}, got {chosen}")
    return tuple(by_name[name.lower()] for name in names)


def _fetch_sizes(options: Options) -> FetchSizes:
    default = FetchSizes()
    return FetchSizes(
        min_bytes=options.parsed(f"{KAFKA_PREFIX}fetch.min.bytes", int32, default.min_bytes),
        max_bytes=options.parsed(f"{KAFKA_PREFIX}fetch.max.bytes", int32, default.max_bytes),
        max_wait_ms=options.parsed(f"{KAFKA_PREFIX}fetch.max.wait.ms", int32, default.max_wait_ms),
        partition_max_bytes=options.parsed(
            f"{KAFKA_PREFIX}max.partition.fetch.bytes", int32, default.partition_max_bytes
        ),
    )


def _isolation(text: str) -> bool:
    if text.lower() not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"{text!r} is neither read_committed nor read_uncommitted")
    return text.lower() == "read_committed"


def _strategy(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError(f"{text!r} is neither error nor latest")
    return text.lower() == "latest"
