"""The lines that an operator reads about connections."""

from __future__ import annotations

from typing import Final

import structlog

from kafkawire.wire.connection import CloseReason
from kafkawire.wire.connection_info import ConnectionInfo

MAX_LOGGED_CHARACTERS: Final = 200
# What an operator wants a line for when it ends a connection; peers that leave are no news.
_TOLD: Final = frozenset(
    {
        CloseReason.HALF_FRAME,
        CloseReason.NO_ROOM,
        CloseReason.SLOW_READER,
        CloseReason.SLOW_DRAIN,
        CloseReason.FILE_TOO_SHORT,
    }
)
_log = structlog.get_logger(__name__)


def tell_end(info: ConnectionInfo, reason: CloseReason, detail: str) -> None:
    """If it is news."""
    if reason in _TOLD:
        tell(info, reason, detail)


def tell(info: ConnectionInfo, reason: CloseReason, detail: str) -> None:
    """Why a connection ends, or will."""
    _log.info(f"connection closed: {reason.value}", detail=printable(detail), **_identity(info))


def tell_failure(info: ConnectionInfo) -> None:
    """With the traceback of the exception that is being handled."""
    _log.exception("connection closed: handler failed", **_identity(info))


def _identity(info: ConnectionInfo) -> dict[str, str]:
    return {"listener": info.listener_name, "peer": info.peer_host}


def printable(text: str) -> str:
    """Text that may hold bytes of a client, fit for one line of a log."""
    return text[:MAX_LOGGED_CHARACTERS].encode("unicode_escape").decode("ascii")
