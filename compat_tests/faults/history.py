"""Comparison of the producers' acknowledgements with the log: every record value is unique, `<writer>.<number>`.

Pure bookkeeping, no client and no broker: tested on its own, so that a silent campaign means something.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHOWN_PER_KIND = 3
NO_OFFSET = -1  # the offset of a record that was acknowledged without an offset


class Place(NamedTuple):
    partition: int
    offset: int


class Found(NamedTuple):
    """A record of the final read."""

    place: Place
    value: str


@dataclass
class History:
    """Acknowledgements as they came in; `check` compares them with a full read, in offset order per partition."""

    acked: list[Found] = field(default_factory=list)

    def ack(self, partition: int, offset: int, value: str) -> None:
        self.acked.append(Found(Place(partition, offset), value))

    def check(self, read: Iterable[Found], starts: Mapping[int, int] | None = None) -> list[str]:
        """The anomalies, a few of each kind with their number; empty without any. `starts`: the first offsets of logs
        that do not begin at 0, by partition."""
        places: dict[str, list[Place]] = defaultdict(list)
        anomalies: dict[str, list[str]] = defaultdict(list)
        next_offset: Counter[int] = Counter(starts)
        last_number: dict[tuple[int, str], int] = {}
        for place, value in read:
            places[value].append(place)
            if place.offset != next_offset[place.partition]:
                anomalies["gap"].append(f"{place} follows offset {next_offset[place.partition] - 1}")
            next_offset[place.partition] = place.offset + 1
            writer, _, number = value.rpartition(".")
            if int(number) <= last_number.get((place.partition, writer), -1):
                anomalies["reordered"].append(f"{value} at {place}")
            last_number[place.partition, writer] = int(number)
        for value, found in places.items():
            if len(found) > 1:
                anomalies["doubled"].append(f"{value} at {found}")
        for place, value in self.acked:
            if value not in places:
                anomalies["lost"].append(f"{value}, acknowledged at {place}")
            elif not any(_matches_ack(place, found) for found in places[value]):
                anomalies["inconsistent offset"].append(f"{value}, acknowledged at {place}, is at {places[value]}")
        return [f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in anomalies.items()]


def _matches_ack(acked: Place, found: Place) -> bool:
    return acked.partition == found.partition and acked.offset in (NO_OFFSET, found.offset)
