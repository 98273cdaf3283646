"""Options for reads of sealed segments past the broker."""

from __future__ import annotations

import pytest

from spark_connectors.options import OptionRefused, Options
from spark_connectors.source.segment_options import SPLIT_BYTES, SegmentOptions, segment_options


def parsed(**given: str) -> SegmentOptions | None:
    options = Options({name.replace("_", "."): value for name, value in given.items()})
    found = segment_options(options)
    options.finish()
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"segments": "http://a:9644"}, SegmentOptions(("http://a:9644",))),
        (
            {"segments": " http://a:9644/, http://[::1]:1 ", "segments_files": "true", "segments_splitBytes": "7"},
            SegmentOptions(("http://a:9644", "http://[::1]:1"), has_files=True, split_bytes=7),
        ),
        (
            {"segments": "http://a:9644", "segments_store": "s3://k:s@b?region=x"},
            SegmentOptions(("http://a:9644",), "s3://k:s@b?region=x"),
        ),
        ({"segments": "s3://bucket/lake"}, SegmentOptions((), "s3://bucket/lake")),
        ({"segments": "file:///tier", "segments_clusterId": "c"}, SegmentOptions((), "file:///tier", "c")),
    ],
)
def test_segment_options_are_parsed(given: dict[str, str], expected: SegmentOptions | None) -> None:
    assert parsed(**given) == expected
    assert expected is None or expected.split_bytes == int(given.get("segments_splitBytes", SPLIT_BYTES))


@pytest.mark.parametrize(
    "given",
    [
        {"segments": ""},
        {"segments": ","},
        {"segments": "a:9644"},
        {"segments": "https://a:9644"},
        {"segments": "http://a:9644/v1"},
        {"segments": "http://a:9644", "segments_clusterId": "c"},
        {"segments": "http://a:9644", "segments_store": "bucket"},
        {"segments": "http://a:9644", "segments_splitBytes": "0"},
        {"segments": "http://a:9644", "segments_files": "yes"},
        {"segments": "s3://bucket", "segments_store": "s3://other"},
        {"segments": "file:///tier", "segments_files": "true"},
        {"segments_files": "true"},
        {"segments_splitBytes": "7"},
    ],
)
def test_invalid_segment_options_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionRefused, match="segments"):
        parsed(**given)


def test_a_password_is_in_no_text() -> None:
    assert "secret" not in repr(parsed(segments="s3://key:secret@bucket"))
    assert "secret" not in repr(parsed(segments="http://a:1", segments_store="s3://key:secret@bucket"))
