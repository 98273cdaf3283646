"""What a job tells of itself: while it runs in lines for people, and when it ends as JSON for programs.

{"job": "export", "outcome": "done", "asked": {"topic": "events", …}, "seconds": 12.3,
 "counts": {"rows": 5000000, …}, "findings": [{…}, …], "findings_left_out": 0}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

FINDINGS_MAX: Final = 1000
LINE_EVERY_S: Final = 1.0


class Outcome(StrEnum):
    DONE = "done"
    DIFFERS = "differs"  # what was compared is not the same, or what was looked at is not in order
    STOPPED = "stopped"  # before its end; run again, it goes on


@dataclass
class Report:
    """`asked` has nothing secret in it. Findings are of one form for each job; only the first ones are kept."""

    job: str
    asked: Mapping[str, Any]
    outcome: Outcome = Outcome.DONE
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    findings_left_out: int = 0
    reason: str | None = None  # why it was stopped

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def found(self, **finding: Any) -> None:
        """Something that makes the two sides differ, or that is not in order."""
        self.outcome = Outcome.DIFFERS
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.findings_left_out += 1

    def to_json(self, seconds: float) -> str:
        told = {
            "job": self.job,
            "outcome": self.outcome,
            **({} if self.reason is None else {"reason": self.reason}),
            "asked": dict(self.asked),
            "seconds": round(seconds, 3),
            "counts": self.counts,
            "findings": self.findings,
            "findings_left_out": self.findings_left_out,
        }
        return json.dumps(told, indent=2) + "\n"


class ProgressLine:
    """How far a job is, in a line now and then."""

    def __init__(self, show: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._show = show
        self._now_s = now_s
        self._begun_s = now_s()
        self._shown_s: float | None = None

    def tell(self, what: str, done: int, total: int, rows: int = 0, *, is_last: bool = False) -> None:
        """`done` of `total` offsets, or whatever they are counted in; `rows` were read so far."""
        now_s = self._now_s()
        if self._shown_s is not None and now_s - self._shown_s < LINE_EVERY_S and not is_last:
            return
        self._shown_s = now_s
        share = 100.0 if done >= total else 100 * done / total
        rate = rows / (now_s - self._begun_s) if now_s > self._begun_s else 0.0
        self._show(f"{what}: {share:.1f} % ({done} of {total}), {rows} rows, {rate:.0f} rows/s")
