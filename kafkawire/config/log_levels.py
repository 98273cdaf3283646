"""Levels of loggers, which clients may change at run time as configs of broker loggers (KIP-412).

A package has a logger, under `root`; without a level of its own it has root's. As in Kafka, changes are not durable:
every start begins with `INFO`. The form and the target of lines are elsewhere.
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "root"
LOGGERS: Final = (ROOT, "coordinator", "kafkawire")
INITIAL: Final = "INFO"
SEVERITIES: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
# The severity of a line is that of the logging method.
SEVERITY_OF_METHOD: Final = {
    "debug": SEVERITIES["DEBUG"],
    "info": SEVERITIES["INFO"],
    "warning": SEVERITIES["WARN"],
    "error": SEVERITIES["ERROR"],
    "exception": SEVERITIES["ERROR"],
    "critical": SEVERITIES["FATAL"],
}


class LogLevels:
    """The level of each of LOGGERS."""

    def __init__(self) -> None:
        self._own = {ROOT: INITIAL}

    def of(self, logger: str) -> str:
        """The level in effect of a logger."""
        return self._own.get(logger, self._own[ROOT])

    def set(self, logger: str, level: str) -> None:
        """Set a logger's own level."""
        assert logger in LOGGERS, logger
        assert level in SEVERITIES, level
        self._own[logger] = level

    def unset(self, logger: str) -> None:
        """Return a logger to root's level."""
        assert logger != ROOT, "root has no other to follow"
        self._own.pop(logger, None)

    def allows(self, module: str, method: str) -> bool:
        """Whether a line of `module`, logged by `method`, is written."""
        return SEVERITY_OF_METHOD[method] >= SEVERITIES[self.of(module.partition(".")[0])]


LEVELS: Final = LogLevels()  # shared by the process, which has one log
