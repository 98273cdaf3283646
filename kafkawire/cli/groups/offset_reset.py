"""Offsets of a group after a reset: the decision, without requests. Pure.

After Kafka's ConsumerGroupCommand: an offset that is named, shifted or read from a file is bounded by the log; the
other offsets are within the log anyway. A date without a zone is UTC.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from kafkawire.client.partitions import TopicPartition

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_DURATION_MAX_MS: Final = 2**62  # the present time less this is still a timestamp
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ResetRefused(Exception):
    """Refusal of a reset; nothing was changed."""


class Goal(Enum):
    """Target of a reset: the option that names it."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    TIME = "--to-datetime"
    FILE = "--from-file"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Target of a reset. `number` is an offset, a shift or a time in ms."""

    goal: Goal
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


class Known(NamedTuple):
    """Known offsets of a partition. `at_time` is the first offset at the wanted time; None if no record is as late."""

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


class Move(NamedTuple):
    """New offset of a partition. `warning` is the reason why it differs from the wanted one."""

    partition: TopicPartition
    committed: int | None
    offset: int
    warning: str | None = None


def plan(target: ResetTarget, known: Mapping[TopicPartition, Known]) -> list[Move]:
    """New offsets in the order of partitions. Raises ResetRefused."""
    return [_move(target, partition, known[partition]) for partition in sorted(known)]


def _move(target: ResetTarget, partition: TopicPartition, known: Known) -> Move:
    if target.goal is Goal.EARLIEST:
        return Move(partition, known.committed, known.start)
    if target.goal is Goal.LATEST:
        return Move(partition, known.committed, known.end)
    if target.goal is Goal.CURRENT:
        return Move(partition, known.committed, known.end if known.committed is None else known.committed)
    if target.goal is Goal.TIME:
        if known.at_time is not None:
            return Move(partition, known.committed, known.at_time)
        return Move(partition, known.committed, known.end, f"{partition} has no record as late: the end is taken")
    return _bounded(partition, known, _target_offset(target, partition, known))


def _target_offset(target: ResetTarget, partition: TopicPartition, known: Known) -> int:
    if target.goal is Goal.FILE:
        return target.offsets[partition]
    if target.goal is Goal.OFFSET:
        return target.number
    if known.committed is None:
        raise ResetRefused(f"{partition} cannot be shifted: nothing is committed")
    return known.committed + target.number


def _bounded(partition: TopicPartition, known: Known, offset: int) -> Move:
    if offset > known.end:
        warning = f"{offset} is higher than the latest offset of {partition}: {known.end} is taken"
        return Move(partition, known.committed, known.end, warning)
    if offset < known.start:
        warning = f"{offset} is lower than the earliest offset of {partition}: {known.start} is taken"
        return Move(partition, known.committed, known.start, warning)
    return Move(partition, known.committed, offset)


def parse_topic(text: str) -> tuple[str, list[TopicPartition]]:
    """Parse `topic` or `topic:0,1`. Without partitions, all partitions are meant. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:PARTITION,...")
    return topic, sorted({TopicPartition(topic, int(number)) for number in numbers.split(",") if colon})


def merge_topics(topics: Iterable[tuple[str, list[TopicPartition]]]) -> dict[str, list[TopicPartition]]:
    """Merge results of `parse_topic`. A topic without partitions includes all named partitions of it."""
    merged: dict[str, list[TopicPartition]] = {}
    for topic, partitions in topics:
        before = merged.get(topic, partitions)
        merged[topic] = sorted({*before, *partitions}) if before and partitions else []
    return merged


def parse_datetime_ms(text: str) -> int:
    """Parse an ISO 8601 date and time into ms. A time before 1970 becomes 0: negative times have special meanings.

    Raises ValueError.
    """
    time = datetime.fromisoformat(text)
    return max(0, round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration of days and shorter units, like Java: P7D, PT1H30M. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    parts = {unit: value for unit, value in match.groupdict().items() if value and unit != "sign"} if match else {}
    if match is None or not parts:
        raise ValueError(f"{text!r} is not a duration such as P7D or PT1H30M")
    total_ms = sum(float(value) * _UNIT_MS[unit] for unit, value in parts.items())
    if total_ms > _DURATION_MAX_MS:
        raise ValueError("a duration of more than a hundred million years")
    duration_ms = round(total_ms)
    return -duration_ms if match["sign"] == "-" else duration_ms


def parse_csv(lines: Iterable[str], group_id: str) -> dict[TopicPartition, int]:
    """Parse rows of `topic,partition,offset`, or of `group,topic,partition,offset` for several groups.

    Raises ValueError.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(_rows(lines), 1):
        if not row or (len(row) == 4 and row[0] != group_id):
            continue
        if len(row) not in (3, 4) or not row[-2].isdecimal() or not row[-1].isdecimal():
            raise ValueError(f"line {number} is not topic,partition,offset: {','.join(row)}")
        offsets[TopicPartition(row[-3], int(row[-2]))] = int(row[-1])
    return offsets


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise ValueError(f"no CSV: {error}") from None
