"""Logging set-up: readable lines on a terminal, one JSON object a line elsewhere; all on standard error."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from kafkawire.config.log_levels import LEVELS, ROOT

_PROCESSORS: list[Any] = []  # always the same list: a cached logger keeps the list of its first use


class Logger(structlog.PrintLogger):
    """Printer of a module's lines, which knows its name."""

    def __init__(self, module: str = ROOT) -> None:
        super().__init__(sys.stderr)
        self.module = module


def configure(*, pretty: bool | None = None) -> None:
    """Choose the form of log lines; by default pretty if standard error is a terminal."""
    if pretty is None:
        pretty = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer()
    _PROCESSORS[:] = [
        drop_below_level,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if not pretty else structlog.processors.StackInfoRenderer(),
        renderer,
    ]
    structlog.configure(processors=_PROCESSORS, logger_factory=Logger, cache_logger_on_first_use=True)


def drop_below_level(logger: Logger, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop lines below the level of their logger."""
    if not LEVELS.allows(logger.module, method):
        raise structlog.DropEvent
    return event
