"""Declaration of a field of the configuration with its key."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from kafkawire.config.keys import Key, Update
from kafkawire.config.values import Reader


def setting(
    name: str,
    reader: Reader,
    default: str | None,
    documentation: str,
    update: Update = Update.READ_ONLY,
    *,
    also: str | None = None,
) -> Any:
    """A field of `Config` with its key; `also` is an older name, which the key precedes."""
    key = Key(name, reader, default, documentation, update)
    return field(default=reader(default or ""), metadata={"key": key, "also": also})
