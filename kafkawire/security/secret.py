"""The secret that the brokers of a cluster share, from a file that only its owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

SIZE_MIN_BYTES: Final = 16
SIZE_MAX_BYTES: Final = 4096  # a larger file is the wrong one


class SecretRefused(Exception):
    """The file is unusable. The text is one line that names it and the reason."""


def read_secret(path: Path) -> bytes:
    """Read the secret, without a newline at the end. Raises SecretRefused."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(SIZE_MAX_BYTES + 2).removesuffix(b"\n")
    except OSError as error:
        raise SecretRefused(f"{path}: cannot be read: {error.strerror or error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SecretRefused(f"{path}: others than its owner have rights to it (mode {stat.S_IMODE(mode):04o})")
    if not secret:
        raise SecretRefused(f"{path}: is empty")
    if len(secret) < SIZE_MIN_BYTES:
        raise SecretRefused(f"{path}: a secret has {SIZE_MIN_BYTES} bytes or more, not {len(secret)}")
    if len(secret) > SIZE_MAX_BYTES:
        raise SecretRefused(f"{path}: a secret has {SIZE_MAX_BYTES} bytes at most")
    return secret
