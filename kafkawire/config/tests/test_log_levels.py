"""Visible log lines, by the levels of their loggers."""

from __future__ import annotations

import pytest
import structlog

from kafkawire.config.log_levels import LEVELS, LOGGERS, ROOT, LogLevels
from kafkawire.process.log_output import Logger, drop_below_level


def test_a_logger_without_a_level_has_roots() -> None:
    levels = LogLevels()
    assert {levels.of(logger) for logger in LOGGERS} == {"INFO"}
    levels.set(ROOT, "ERROR")
    levels.set("coordinator", "DEBUG")
    assert [levels.of(logger) for logger in LOGGERS] == ["ERROR", "DEBUG", "ERROR"]
    levels.unset("coordinator")
    levels.unset("kafkawire")
    assert levels.of("coordinator") == "ERROR"


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("TRACE", ["debug", "info", "warning", "error", "exception", "critical"]),
        ("INFO", ["info", "warning", "error", "exception", "critical"]),
        ("WARN", ["warning", "error", "exception", "critical"]),
        ("FATAL", ["critical"]),
    ],
)
def test_a_logger_passes_messages_at_or_above_its_level(level: str, allowed: list[str]) -> None:
    levels = LogLevels()
    levels.set("kafkawire", level)
    methods = ["debug", "info", "warning", "error", "exception", "critical"]
    assert [method for method in methods if levels.allows("kafkawire.server.session", method)] == allowed
    assert not levels.allows("coordinator.cluster_manager", "debug")


def test_a_line_below_the_level_ends() -> None:
    event = {"event": "said"}
    assert drop_below_level(Logger("kafkawire.server.session"), "info", event) is event
    LEVELS.set("kafkawire", "ERROR")
    try:
        with pytest.raises(structlog.DropEvent):
            drop_below_level(Logger("kafkawire.server.session"), "info", event)
        assert drop_below_level(Logger("coordinator.state.leveldb_cache"), "info", event) is event
        assert drop_below_level(Logger(), "info", event) is event
    finally:
        LEVELS.unset("kafkawire")
