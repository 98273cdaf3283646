"""The cluster that the log dirs of this broker are of, which a start reads before it asks the metadata store.

A broker with log dirs of a cluster must not make another one in a store that is empty: it was wiped, or is another one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import StoreRefused
from engine.log_dirs.layout import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.files.filesystem import FileSystem


def known_cluster_id(filesystem: FileSystem, log_dirs: Iterable[str]) -> str | None:
    """None: the log dirs are new. One that cannot be read says nothing: the segment store tells why.

    Raises StoreRefused if they are of several clusters.
    """
    found: set[str] = set()
    for path in log_dirs:
        with suppress(StoreRefused, OSError):
            found.add(identity_of(filesystem, path).cluster_id)
    if len(found) > 1:
        raise StoreRefused(f"the log dirs belong to several clusters: {', '.join(sorted(found))}")
    return found.pop() if found else None
