"""Segments in files of this machine, as in a broker's log dir."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from spark_connectors.segments.footers import FooterDamaged, decode
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.sealed import Segment

FOOTER_MAX_BYTES: Final = 4 << 20
_LOG, _FOOTER = ".log", ".footer"


class SegmentFile:
    """Implements `spark_connectors.segments.reading.SegmentBytes`."""

    def __init__(self, segment: Segment) -> None:
        """Open the file first, then check the footer. A broker that replaces a segment removes its footer before, and
        writes the next one after. So a file that was opened before its footer was right stays right. Raises
        SegmentGone, OSError.
        """
        assert segment.path is not None
        self._path = segment.path
        try:
            self._file = Path(segment.path).open("rb", buffering=0)  # noqa: SIM115 # closed by `close`
        except FileNotFoundError:
            raise SegmentGone(f"{self._path} is gone") from None
        try:
            if _digest_beside(segment.path) != segment.digest:
                raise SegmentGone(f"{self._path} is another segment now")
        except BaseException:
            self._file.close()
            raise

    def read(self, position: int, size_bytes: int) -> memoryview:
        """See the Protocol."""
        data = os.pread(self._file.fileno(), size_bytes, position)
        if len(data) < size_bytes:
            raise SegmentGone(f"{self._path} has become shorter")
        return memoryview(data)

    def close(self) -> None:
        self._file.close()


def _digest_beside(path: str) -> str | None:
    """Digest in the footer; None: the footer is missing or damaged."""
    if not path.endswith(_LOG):
        return None
    try:
        with Path(path.removesuffix(_LOG) + _FOOTER).open("rb") as file:
            return decode(file.read(FOOTER_MAX_BYTES)).digest
    except (FileNotFoundError, FooterDamaged):
        return None
