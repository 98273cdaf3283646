"""Segments in files of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import TopicIdPartition
from engine.batches.batch import parse_header
from engine.logs.segments.footer import Tally, encode
from spark_connectors.segments.files import SegmentFile
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.sealed import Segment
from spark_connectors.source.tests.world import Log


def sealed(directory: Path, *values: bytes) -> Segment:
    """A segment file with its footer, as in a log dir."""
    log, tally = Log(), Tally()
    log.append(*values)
    content = b"".join(log.batches)
    tally.add(parse_header(memoryview(content)))
    footer = tally.footer(TopicIdPartition(bytes(16), "t", 0), 0, len(content))
    path = directory / f"{0:020d}.log"
    path.write_bytes(content)
    path.with_suffix(".footer").write_bytes(encode(footer))
    return Segment(0, len(values), len(content), 0, footer.digest.hex(), (), (), None, str(path))


def test_segment_file_reads_its_bytes_and_raises_beyond_its_end(tmp_path: Path) -> None:
    segment = sealed(tmp_path, b"a", b"b")
    content = Path(segment.path or "").read_bytes()
    file = SegmentFile(segment)
    assert bytes(file.read(3, 20)) == content[3:23]
    with pytest.raises(SegmentGone):
        file.read(0, len(content) + 1)
    file.close()


def test_open_segment_file_is_readable_after_a_rename(tmp_path: Path) -> None:
    segment = sealed(tmp_path, b"a")
    file, path = SegmentFile(segment), Path(segment.path or "")
    path.rename(path.with_suffix(".log.deleted"))
    assert len(file.read(0, segment.size_bytes)) == segment.size_bytes
    with pytest.raises(SegmentGone):
        SegmentFile(segment)
    file.close()


@pytest.mark.parametrize("footer", [None, b"", b"\xff\xfe", b"digest=\n", b"version=1\n"])
def test_segment_file_with_a_missing_or_malformed_footer_is_not_read(tmp_path: Path, footer: bytes | None) -> None:
    segment = sealed(tmp_path, b"a")
    path = Path(segment.path or "").with_suffix(".footer")
    if footer is None:
        path.unlink()
    else:
        path.write_bytes(footer)
    with pytest.raises(SegmentGone):
        SegmentFile(segment)


def test_another_one_of_that_name_is_not_read(tmp_path: Path) -> None:
    segment = sealed(tmp_path, b"a")
    sealed(tmp_path, b"b")
    with pytest.raises(SegmentGone, match="another"):
        SegmentFile(segment)


def test_only_segments_are_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    with pytest.raises(SegmentGone):
        SegmentFile(sealed(tmp_path, b"a")._replace(path=str(tmp_path / "secret")))
