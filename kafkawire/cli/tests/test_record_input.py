"""Lines as records, and records as lines."""

from __future__ import annotations

from typing import Any

import pytest

from engine.batches.batch import Record, RecordHeader
from kafkawire.cli.common.data_formats import (
    FORMATS,
    decode_document,
    decode_text,
    dump_json,
    encode_document,
    encode_text,
)
from kafkawire.cli.produce import record_input
from kafkawire.cli.produce.record_input import BadInput, Lines, Parser, Reading, parse_header

NOW_MS = 1_700_000_000_000


def parsed(reading: Reading, text: bytes) -> list[Record]:
    parser = Parser(reading, lambda: NOW_MS)
    records, problem = parser.take(text)
    rest, other = parser.take(b"")
    assert (problem, other) == (None, None)
    return records + rest


def test_a_header_is_the_bytes_that_were_typed() -> None:
    assert parse_header("a\udcff=\udcfe") == RecordHeader(b"a\xff", b"\xfe")


def refused(reading: Reading, text: bytes) -> str:
    _, problem = Parser(reading, lambda: NOW_MS).take(text)
    assert problem is not None
    return str(problem)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_do_not_depend_on_pieces(size: int) -> None:
    text = b"one\n\ntwo\r\nlast"
    lines = Lines()
    found = [line for start in range(0, len(text), size) for line in lines.take(text[start : start + size])]
    assert [*found, *lines.take(b"")] == [b"one", b"", b"two\r", b"last"]
    assert lines.take(b"") == []


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "LINE_MAX_BYTES", 10)
    lines = Lines()
    lines.take(b"123456")
    with pytest.raises(BadInput, match="longer than 10 bytes"):
        lines.take(b"78901")


def test_keys_headers_and_tombstones() -> None:
    headers = (parse_header("a=b=c"), parse_header("empty="), parse_header("null"))
    assert headers == (RecordHeader(b"a", b"b=c"), RecordHeader(b"empty", b""), RecordHeader(b"null", None))
    reading = Reading(key_separator=b"::", headers=headers, empty_is_null=True)
    assert parsed(reading, b"k::v::w\n::v\nk::\n") == [
        Record(b"k", b"v::w", NOW_MS, headers),
        Record(b"", b"v", NOW_MS, headers),
        Record(b"k", None, NOW_MS, headers),
    ]
    assert parsed(Reading(key=b"all"), b"v\n\n") == [Record(b"all", b"v", NOW_MS), Record(b"all", b"", NOW_MS)]


def test_records_before_a_bad_line_are_kept() -> None:
    records, problem = Parser(Reading(key_separator=b":"), lambda: NOW_MS).take(b"a:1\nb:2\nc\nd:4\n")
    assert [one.value for one in records] == [b"1", b"2"]
    assert str(problem) == "line 3: there is no ':' after a key"


@pytest.mark.parametrize("name", FORMATS)
def test_formats_there_and_back(name: str) -> None:
    data = b'{"a":[1,"x"]}'
    assert decode_text(encode_text(data, name), name) == data
    assert decode_document(encode_document(data, name), name) == data
    assert encode_document(None, name) is None
    assert decode_document(None, name) is None


def test_bytes_that_are_no_text() -> None:
    assert encode_document(b"\xff", "text") == {"base64": "/w=="}
    assert decode_document({"base64": "/w=="}, "text") == b"\xff"
    assert encode_text(b"\xff", "text") == b"\xff"
    assert encode_text(b"null", "json") == b"null"
    with pytest.raises(ValueError, match="not json: hello"):
        encode_text(b"hello", "json")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("json", b"{", "not json: {"),
        ("hex", b"0g", "not hex: 0g"),
        ("base64", b"a", "not base64: a"),
        ("hex", b"\xff" * 50, "not hex: "),
        ("json", b"[" * 100_000, "not json: "),
        ("json", b"NaN", "not json: NaN"),
        ("json", b'{"a":-1e400}', 'not json: {"a":-1e400}'),
    ],
)
def test_text_that_does_not_match_its_format_is_refused_with_its_line(name: str, text: bytes, reason: str) -> None:
    assert refused(Reading(value_format=name), text + b"\n").startswith(f"line 1: {reason}")


def test_json_lines() -> None:
    reading = Reading(as_json=True, headers=(RecordHeader(b"all", None),))
    lines = (
        b'{"key": "k", "value": {"base64": "/w=="}, "timestamp": 5, "headers": [{"key": "a", "value": null}]}\n'
        b'{"value": "v", "offset": 7}\n'
        b'{"value": "v", "timestamp": -1}\n'
    )
    assert parsed(reading, lines) == [
        Record(b"k", b"\xff", 5, (RecordHeader(b"all", None), RecordHeader(b"a", None))),
        Record(None, b"v", NOW_MS, (RecordHeader(b"all", None),)),
        Record(None, b"v", -1, (RecordHeader(b"all", None),)),
    ]
    documents = Reading(as_json=True, value_format="json", key=b"all", empty_is_null=True)
    assert parsed(documents, b'{"key": "k", "value": {"a": [1]}}\n') == [Record(b"all", b'{"a":[1]}', NOW_MS)]


@pytest.mark.parametrize("data", [b'"\\ud800"', b'{"\\udfff":["\\u00fc"]}'])
def test_half_of_a_surrogate_pair_is_escaped(data: bytes) -> None:
    """JSON can name a lone surrogate, UTF-8 cannot."""
    assert encode_text(data, "json") == data
    assert dump_json(encode_document(data, "json"), separators=(",", ":")) == data
    assert dump_json("ü") == '"ü"'.encode()
    reading = Reading(as_json=True, value_format="json")
    assert parsed(reading, b'{"value": %b}\n' % data) == [Record(None, data, NOW_MS)]


def test_json_that_is_nested_too_deeply_or_out_of_range_is_refused() -> None:
    document: Any = []
    for _ in range(100_000):
        document = [document]
    with pytest.raises(ValueError, match="nested too deeply"):
        dump_json(document)
    with pytest.raises(ValueError, match="not json: 1e400"):
        encode_document(b"1e400", "json")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("v", "it is not a JSON object"),
        ("[1]", "it is not a JSON object with a key or a value"),
        ("{}", "it is not a JSON object with a key or a value"),
        ('{"value": 1}', "not text: 1"),
        ('{"value": {"base64": 1}}', 'not text: {"base64": 1}'),
        ('{"value": {"base64": "a"}}', "not base64: a"),
        ('{"value": "v", "timestamp": -2}', "its timestamp is neither milliseconds since 1970 nor -1 for none"),
        ('{"value": "v", "timestamp": "now"}', "its timestamp is neither milliseconds since 1970 nor -1 for none"),
        ('{"value": "v", "headers": {"a": "b"}}', "its headers are not objects with key and value"),
        ('{"value": "v", "headers": [{"value": "b"}]}', "its headers are not objects with key and value"),
    ],
)
def test_json_lines_that_are_no_records(line: str, reason: str) -> None:
    assert refused(Reading(as_json=True), line.encode() + b"\n") == f"line 1: {reason}"


def test_a_record_that_was_written_is_read() -> None:
    document: Any = encode_document("ü".encode(), "text")
    assert decode_document(document, "text") == "ü".encode()
