"""The levels of loggers, which clients may change while the broker runs, as configs of its loggers (KIP-412).

A package has a logger, under `root`; without a level of its own it has root's. As in Kafka nothing is written down:
every start is with `INFO`. How a line looks and where it goes is not decided here.
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "root"
LOGGERS: Final = (ROOT, "coordinator", "kafkawire")
INITIAL: Final = "INFO"
SEVERITIES: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
# What a line calls itself by is the name of the method that told it.
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
        """The level that counts for a logger."""
        return self._own.get(logger, self._own[ROOT])

    def set(self, logger: str, level: str) -> None:
        """Gives a logger a level of its own."""
        assert logger in LOGGERS, logger
        assert level in SEVERITIES, level
        self._own[logger] = level

    def unset(self, logger: str) -> None:
        """Lets a logger have root's level."""
        assert logger != ROOT, "root has no other to follow"
        self._own.pop(logger, None)

    def tells(self, module: str, method: str) -> bool:
        """Whether a line that `module` tells by `method` is to be seen."""
        return SEVERITY_OF_METHOD[method] >= SEVERITIES[self.of(module.partition(".")[0])]


LEVELS: Final = LogLevels()  # of the process, which has one log
