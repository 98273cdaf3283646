"""Directories with data of the control plane, for the broker's own user alone, under any umask."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from pathlib import Path

OWNER_ONLY: Final = 0o700

_log = structlog.get_logger(__name__)


def make_private(directory: Path) -> None:
    """Makes the directory, with its parents, or tightens the mode of an existing one. Its content is out of reach with
    it.

    The directory of another user, such as a mounted volume, cannot be tightened: it is used as it is, and that is
    logged. Raises OSError when it cannot be made.
    """
    directory.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & ~OWNER_ONLY & 0o777:
        try:
            directory.chmod(OWNER_ONLY)
        except PermissionError:
            _log.warning("directory found readable by other users", directory=str(directory), mode=f"{mode:04o}")
