"""What one run of a job has, whichever job it is."""

from __future__ import annotations

from dataclasses import dataclass

from spark_connectors.jobs.report import ProgressLine
from spark_connectors.jobs.workers import Workers


@dataclass(frozen=True)
class Session:
    """Who does the tasks, who hears how far they are, and whether it is only asked what would be done."""

    workers: Workers
    progress: ProgressLine
    is_dry_run: bool = False
