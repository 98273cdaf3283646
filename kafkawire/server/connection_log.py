"""Log lines about connections, for operators."""

from __future__ import annotations

from typing import Final

import structlog

from kafkawire.wire.connection import CloseReason
from kafkawire.wire.connection_info import ConnectionInfo

MAX_LOGGED_CHARACTERS: Final = 200
# Reasons that are logged when they end a connection. A peer that leaves is not logged.
_LOGGED_REASONS: Final = frozenset(
    {
        CloseReason.HALF_FRAME,
        CloseReason.NO_ROOM,
        CloseReason.SLOW_READER,
        CloseReason.SLOW_DRAIN,
        CloseReason.FILE_TOO_SHORT,
    }
)
_log = structlog.get_logger(__name__)


def log_end(info: ConnectionInfo, reason: CloseReason, detail: str) -> None:
    """Log the end of a connection, if its reason is worth a line."""
    if reason in _LOGGED_REASONS:
        log_close(info, reason, detail)


def log_close(info: ConnectionInfo, reason: CloseReason, detail: str, **counted: int) -> None:
    """Log why a connection ends or will end. `counted`: numbers of events that have no line."""
    _log.info(f"connection closed: {reason.value}", detail=printable(detail), **_identity(info), **counted)


def log_failure(info: ConnectionInfo) -> None:
    """Log a failed handler, with the traceback of the exception that is being handled."""
    _log.exception("connection closed: handler failed", **_identity(info))


def _identity(info: ConnectionInfo) -> dict[str, str]:
    return {"listener": info.listener_name, "peer": info.peer_host}


def printable(text: str) -> str:
    """Escape text with a client's bytes, so that it fits into one log line."""
    return text[:MAX_LOGGED_CHARACTERS].encode("unicode_escape").decode("ascii")
