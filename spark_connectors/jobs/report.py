"""Progress of a job as lines for people, and its report as JSON for programs.

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


class JobOutcome(StrEnum):
    DONE = "done"
    DIFFERS = "differs"  # the compared sides differ, or the check found a problem
    STOPPED = "stopped"  # before its end; another run continues


@dataclass
class Report:
    """Report of a job. `asked` has no secrets. Each job has one form of findings; only the first ones are kept."""

    job: str
    asked: Mapping[str, Any]
    outcome: JobOutcome = JobOutcome.DONE
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    findings_left_out: int = 0
    reason: str | None = None  # why the job stopped

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def found(self, **finding: Any) -> None:
        """Add a difference of the two sides, or another problem."""
        self.outcome = JobOutcome.DIFFERS
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.findings_left_out += 1

    def to_json(self, seconds: float) -> str:
        document = {
            "job": self.job,
            "outcome": self.outcome,
            **({} if self.reason is None else {"reason": self.reason}),
            "asked": dict(self.asked),
            "seconds": round(seconds, 3),
            "counts": self.counts,
            "findings": self.findings,
            "findings_left_out": self.findings_left_out,
        }
        return json.dumps(document, indent=2) + "\n"


class ProgressLine:
    """Progress of a job: at most one line a second."""

    def __init__(self, show: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._show = show
        self._now_s = now_s
        self._started_s = now_s()
        self._shown_s: float | None = None

    def update(self, label: str, done: int, total: int, rows: int = 0, *, is_last: bool = False) -> None:
        """Show progress: `done` of `total` offsets (or other units), and the number of rows read so far."""
        now_s = self._now_s()
        if self._shown_s is not None and now_s - self._shown_s < LINE_EVERY_S and not is_last:
            return
        self._shown_s = now_s
        share = 100.0 if done >= total else 100 * done / total
        rate = rows / (now_s - self._started_s) if now_s > self._started_s else 0.0
        self._show(f"{label}: {share:.1f} % ({done} of {total}), {rows} rows, {rate:.0f} rows/s")
