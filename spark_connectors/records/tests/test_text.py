"""Keys of headers are decoded as by Java. The expected values come from `new String(bytes, UTF_8)` in JDK 17."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Record, RecordHeader
from spark_connectors.records.tests.written import batch, record_batches
from spark_connectors.records.text import as_java_decodes

WRONG = {
    b"\xff": "\ufffd",
    b"a\x80b": "a\ufffdb",
    b"\xc3": "\ufffd",
    b"\xe2\x82": "\ufffd",
    b"\xe2\x82a": "\ufffda",
    b"\xf0\x9f\x98": "\ufffd",
    b"\xed\xa0\x80": "\ufffd",  # a surrogate: three wrong bytes in Python
    b"\xed\xa0\x80\xed\xb0\x80": "\ufffd\ufffd",
    b"\xed\xbe\xc0\xf0\x80A\xef\x8f": "\ufffd\ufffd\ufffd\ufffdA\ufffd",
    b"\xed\xa0\xdf\xa0": "\ufffd\u07e0",
    b"\xed": "\ufffd",
    b"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
    b"\xc0\x80": "\ufffd\ufffd",
}


@pytest.mark.parametrize("octets", WRONG, ids=bytes.hex)
def test_invalid_utf8_is_replaced_as_often_as_by_java(octets: bytes) -> None:
    assert as_java_decodes(octets) == WRONG[octets]


@given(st.text())
def test_valid_utf8_is_decoded_unchanged(text: str) -> None:
    assert as_java_decodes(text.encode()) == text


@given(st.binary())
def test_decoded_text_of_any_bytes_can_be_encoded_again(octets: bytes) -> None:
    as_java_decodes(octets).encode()


def test_a_header_with_such_a_key_is_a_row_like_any_other() -> None:
    headers = (RecordHeader(b"right", b"1"), RecordHeader(b"\xed\xa0\x80wrong", None), RecordHeader(b"", b""))
    [one] = record_batches(batch(Record(headers=headers), Record(), Record(headers=headers[:1])))
    assert one.column("headers").to_pylist() == [
        [{"key": "right", "value": b"1"}, {"key": "\ufffdwrong", "value": None}, {"key": "", "value": b""}],
        None,
        [{"key": "right", "value": b"1"}],
    ]
