"""Comparison of the records that a reader saw while brokers stopped and started with the log in the end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from compat_tests.faults.history import SHOWN_PER_KIND, Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def check_reader(seen: Sequence[Found], read: Iterable[Found], *, is_exact: bool = True) -> list[str]:
    """The anomalies, a few of each kind with their number. `seen` is in the order of reading. `is_exact`: the reader
    has to see each record once and in order; without it, the reader may have begun again at an earlier offset."""
    anomalies: dict[str, list[str]] = defaultdict(list)
    values = dict(read)
    last: dict[int, int] = {}
    for place, value in seen:
        if values.get(place) != value:
            anomalies["seen of a log that is not"].append(f"{value} at {place}, where {values.get(place)} is")
        if is_exact and place.offset <= last.get(place.partition, -1):
            anomalies["seen again"].append(f"{value} at {place}")
        last[place.partition] = place.offset
    for place in sorted(values.keys() - {one.place for one in seen}):
        anomalies["not seen"].append(f"{values[place]} at {place}")
    return [f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in anomalies.items()]
