"""Logging set-up: readable lines on a terminal, one JSON object a line elsewhere; all on standard error."""

from __future__ import annotations

import sys
from typing import Any

import structlog


def configure(*, pretty: bool | None = None) -> None:
    """Chooses the form of log lines; by default pretty exactly when standard error is a terminal."""
    if pretty is None:
        pretty = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if not pretty else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
