"""The id of the cluster that this broker's log dirs belong to. A start reads it before it asks the metadata store.

A broker with log dirs of a cluster must not create another cluster in an empty store: the store was wiped, or is the
wrong one.
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
    """The cluster id of the log dirs, or None if all are new. A log dir that cannot be read is ignored: the segment
    store reports the reason later.

    Raises StoreRefused if the log dirs belong to several clusters.
    """
    found: set[str] = set()
    for path in log_dirs:
        with suppress(StoreRefused, OSError):
            found.add(identity_of(filesystem, path).cluster_id)
    if len(found) > 1:
        raise StoreRefused(f"the log dirs belong to several clusters: {', '.join(sorted(found))}")
    return found.pop() if found else None
