"""Processes that commit and outlive their driver: each is held at a request until the next driver has begun to commit.

After that, the broker must fence it: the next request of it is answered with such an error.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compat_tests.applications.spark.kill_plan import FENCED_AT
from compat_tests.faults.late_replies import code
from spark_connectors.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat_tests.faults.faulty_proxy import LateRequest
    from spark_connectors.wire.api import Api

FENCED: Final = {str(int(one)) for one in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)}


@dataclass(frozen=True)
class Orphan:
    """A process that is held, other processes of its driver, and counts at the time of the driver's death."""

    held_at: Api[Any, Any]
    processes: Sequence[int]
    reads: int  # OffsetFetch requests, which follow InitProducerId
    answers: int  # answers in the proxy's memory


class Orphans:
    """The results of the processes that were released."""

    def __init__(self) -> None:
        self._held = Counter[str]()
        self._fenced = Counter[str]()
        self.anomalies: list[str] = []

    def judge(self, held_at: Api[Any, Any], answers: Sequence[LateRequest]) -> None:
        """Judge a process by the broker's answers since its release."""
        codes = list(map(code, answers))
        is_fenced = bool(FENCED & set(codes))
        self._held[held_at.name] += 1
        self._fenced[held_at.name] += is_fenced
        if held_at in FENCED_AT and not is_fenced:
            self.anomalies.append(f"who was held at {held_at.name} was not fenced but answered {codes}")

    @property
    def fenced(self) -> int:
        return self._fenced.total()

    def __str__(self) -> str:
        where = ", ".join(f"{self._fenced[name]} of {held} at {name}" for name, held in sorted(self._held.items()))
        return f"{self.fenced} of {self._held.total()} ({where})"
