"""The parts that each run of a job has."""

from __future__ import annotations

from dataclasses import dataclass

from spark_connectors.jobs.report import ProgressLine
from spark_connectors.jobs.workers import Workers


@dataclass(frozen=True)
class Session:
    """Workers, progress line, and whether only the plan is reported."""

    workers: Workers
    progress: ProgressLine
    is_dry_run: bool = False
