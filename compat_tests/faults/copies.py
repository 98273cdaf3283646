"""Comparison of a topic with the copy that transformers wrote: each input exactly once, in its order.

Pure bookkeeping, no client and no broker: tested on its own, so that a silent campaign means something.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN_PER_KIND = 3


def check_copies(inputs: Mapping[int, Sequence[str]], outputs: Mapping[int, Sequence[str]]) -> list[str]:
    """The anomalies, a few of each kind with their number; values by partition, in the order of offsets."""
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "invented": [], "reordered": []}
    for partition in sorted(inputs.keys() | outputs.keys()):
        originals, copied = inputs.get(partition, ()), outputs.get(partition, ())
        expected, counts = set(originals), Counter(copied)
        found["lost"] += [f"{value} of {partition}" for value in originals if value not in counts]
        found["doubled"] += [f"{value} of {partition}: {count} times" for value, count in counts.items() if count > 1]
        found["invented"] += [f"{value} in {partition}" for value in counts if value not in expected]
        first = list(dict.fromkeys(value for value in copied if value in expected))
        in_order = list(dict.fromkeys(value for value in originals if value in counts))
        found["reordered"] += [
            f"{value} in {partition}" for value, other in zip(first, in_order, strict=True) if value != other
        ]
    return [f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in found.items() if each]
