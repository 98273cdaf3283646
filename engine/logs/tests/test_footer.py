"""Footers of sealed segments: content, and detection of damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import parse_header
from engine.errors import StorageError
from engine.logs.segments.footer import Footer, FooterDamaged, Tally, decode, encode, footer_name
from testkit.logs import NOW_MS, ORDERS, batch

numbers = st.integers(-1, 2**63 - 1)
footers = st.builds(
    Footer,
    st.binary(min_size=16, max_size=16),
    *[numbers] * 10,
    st.binary(min_size=32, max_size=32),
    min_timestamp_ms=st.none() | numbers,
)


@given(footers)
def test_an_encoded_footer_decodes_to_the_same_content(footer: Footer) -> None:
    assert decode(encode(footer), "here") == footer


@given(footers, st.data())
def test_a_flipped_bit_in_a_footer_raises_footer_damaged(footer: Footer, data: st.DataObject) -> None:
    content = bytearray(encode(footer))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FooterDamaged):
        decode(bytes(content), "here")


@pytest.mark.parametrize("content", [b"", b"crc32=00000000\n", b"version=1\n"])
def test_content_that_is_no_footer_raises_footer_damaged(content: bytes) -> None:
    with pytest.raises(FooterDamaged):
        decode(content, "here")


def test_another_version_is_not_guessed_at() -> None:
    from binascii import crc32

    body = b"version=3\n"
    with pytest.raises(StorageError, match="here was written by another version"):
        decode(body + b"crc32=%08x\n" % crc32(body), "here")


def least_of(*times: tuple[int, bool]) -> int | None:
    """The least time in the footer of batches with these greatest times, set by a broker's clock (LogAppendTime) or
    not."""
    tally = Tally()
    for time_ms, is_broker_s in times:
        header = parse_header(batch(b"a", timestamps_ms=[time_ms]))
        tally.add(header._replace(attributes=8 if is_broker_s else 0))
    return tally.footer(ORDERS, 0, 0).min_timestamp_ms


def test_the_least_time_is_known_where_a_broker_s_clock_has_set_all() -> None:
    """A broker's clock may be set back. No header tells the least of the times that producers set."""
    assert least_of((7, True), (5, True), (9, True)) == 5
    assert least_of((7, True), (8, False), (9, True)) == -1
    assert least_of((7, False)) == -1
    assert least_of() == -1


def test_a_footer_of_the_version_before_is_compared_without_the_least_time() -> None:
    tally = Tally()
    tally.add(parse_header(batch(b"a", timestamps_ms=[7]))._replace(attributes=8))
    footer = tally.footer(ORDERS, 0, 100)
    older = footer._replace(min_timestamp_ms=None)
    assert encode(older).startswith(b"version=1\n")
    assert decode(encode(older), "here") == older
    assert footer.min_timestamp_ms == 7
    for one, size_bytes, is_right in ((footer, 100, True), (older, 100, True), (older, 99, False)):
        assert tally.is_of(one, ORDERS, 0, size_bytes) is is_right
    assert not tally.is_of(footer._replace(min_timestamp_ms=6), ORDERS, 0, 100)


def test_a_tally_counts_and_its_digest_depends_on_every_batch_and_their_order() -> None:
    headers = [
        parse_header(batch(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS + 5])).placed(10, 3),
        parse_header(batch(b"c", timestamps_ms=[NOW_MS + 2])).placed(12, 4),
    ]
    digests = set()
    for order in (headers, headers[::-1], headers[:1], [headers[0], headers[1].placed(12, 5)]):
        tally = Tally()
        for header in order:
            tally.add(header)
        digests.add(tally.footer(ORDERS, 10, 0).digest)
    assert len(digests) == 4
    tally = Tally()
    for header in headers:
        tally.add(header)
    footer = tally.footer(ORDERS, 10, 150)
    assert footer[:-3] == (ORDERS.topic_id, 0, 10, 0, 150, 2, 3, 10, 12, NOW_MS + 5, NOW_MS + 5)
    assert footer_name(10) == "00000000000000000010.footer"
