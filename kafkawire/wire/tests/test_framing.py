from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.wire.framing import CHUNK_SIZE_BYTES, GROWTH, TRUSTED_SIZE_BYTES, Framer, FramingError

MAX_SIZE_BYTES = 100 * 1024 * 1024


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(framer: Framer, data: bytes) -> int:
    """Receive as much as fits into the lent buffer; return its size."""
    with framer.buffer() as view:
        taken = min(len(view), len(data))
        view[:taken] = data[:taken]
    framer.received(taken)
    return taken


def receive_all(framer: Framer, stream: bytes) -> None:
    while stream:
        stream = stream[feed(framer, stream) :]


def take_all(framer: Framer) -> list[bytearray]:
    frames = []
    while (frame := framer.next_frame()) is not None:
        frames.append(frame)
    return frames


def frames_of(framer: Framer, stream: bytes, cuts: list[int]) -> list[bytearray]:
    frames: list[bytearray] = []
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for start, end in pairwise(edges):
        piece = stream[start:end]
        while piece:
            piece = piece[feed(framer, piece) :]
            frames += take_all(framer)
    return frames


SIZES = st.one_of(
    st.integers(8, 200),
    st.integers(CHUNK_SIZE_BYTES - 8, CHUNK_SIZE_BYTES + 8),
    st.integers(8, 6 * CHUNK_SIZE_BYTES),
)


@given(sizes=st.lists(SIZES, max_size=12), cuts=st.lists(st.integers(0, 2_000_000), max_size=40))
def test_any_split_of_a_stream_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    framer = Framer(MAX_SIZE_BYTES)
    assert frames_of(framer, b"".join(map(framed, payloads)), cuts) == payloads
    assert framer.partial_size_bytes == 0


@given(sizes=st.lists(st.integers(8, 60), min_size=1, max_size=60), data=st.data())
def test_frames_may_be_taken_late_and_one_by_one(sizes: list[int], data: st.DataObject) -> None:
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, payloads))
    framer = Framer(MAX_SIZE_BYTES)
    frames: list[bytearray] = []
    while len(frames) < len(payloads):
        if stream and data.draw(st.booleans()):
            stream = stream[feed(framer, stream[: data.draw(st.integers(1, 100))]) :]
        elif (frame := framer.next_frame()) is not None:
            frames.append(frame)
        elif stream:
            stream = stream[feed(framer, stream[:7]) :]
    assert frames == payloads


def test_a_frame_may_be_taken_while_the_tail_of_the_chunk_is_lent() -> None:
    framer = Framer(MAX_SIZE_BYTES)
    feed(framer, framed(b"complete") + framed(b"half of it")[:6])
    with framer.buffer() as view:
        assert take_all(framer) == [b"complete"]
        rest = framed(b"half of it")[6:]
        view[: len(rest)] = rest
    framer.received(len(rest))
    assert take_all(framer) == [b"half of it"]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, MAX_SIZE_BYTES + 1, 2**31 - 1])
def test_impossible_sizes_are_refused_and_allocate_nothing(size: int) -> None:
    framer = Framer(MAX_SIZE_BYTES)
    feed(framer, struct.pack(">i", size))
    tracemalloc.start()
    try:
        with pytest.raises(FramingError) as refused:  # without a pattern: to compile one takes memory, too
            framer.next_frame()
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024
    finally:
        tracemalloc.stop()
    assert str(size) in str(refused.value)


def test_impossible_frame_size_is_refused_before_any_frame_is_taken() -> None:
    framer = Framer(MAX_SIZE_BYTES)
    stream = struct.pack(">i", 2**31 - 1) + bytes(CHUNK_SIZE_BYTES)
    with pytest.raises(FramingError):
        receive_all(framer, stream)


def test_complete_frames_that_are_not_taken_leave_no_room() -> None:
    framer = Framer(MAX_SIZE_BYTES)
    stream = framed(bytes(1020)) * 64
    receive_all(framer, stream)
    assert not framer.has_room
    assert framer.next_frame() is not None
    assert framer.has_room


def test_memory_of_300_incomplete_frames_of_50_mb_is_bounded_by_the_sent_bytes() -> None:
    tracemalloc.start()
    try:
        framers = [Framer(MAX_SIZE_BYTES) for _ in range(300)]
        for framer in framers:
            feed(framer, struct.pack(">i", 50_000_000) + b"123456")
            assert framer.next_frame() is None
            with framer.buffer():
                pass
        assert tracemalloc.get_traced_memory()[1] < 300 * 8 * 1024
    finally:
        tracemalloc.stop()


def test_large_frame_buffer_grows_with_the_received_bytes() -> None:
    framer = Framer(MAX_SIZE_BYTES)
    size = 50_000_000
    stream = memoryview(framed(bytes(size)))
    sent = 0
    tracemalloc.start()
    try:
        while sent < 5_000_000:
            sent += feed(framer, bytes(stream[sent : sent + 10_000]))
            assert framer.next_frame() is None
            assert tracemalloc.get_traced_memory()[0] < 2 * CHUNK_SIZE_BYTES + GROWTH * sent
        assert sent <= framer.large_size_bytes <= GROWTH * sent
    finally:
        tracemalloc.stop()


def test_each_frame_has_its_own_buffer() -> None:
    framer = Framer(MAX_SIZE_BYTES)
    for payload in (b"a" * 100, b"b" * (2 * CHUNK_SIZE_BYTES), b"c" * 100):
        receive_all(framer, framed(payload))
        (frame,) = take_all(framer)
        assert frame == payload
        frame.extend(b"nothing is exported")


@pytest.mark.parametrize(
    ("delivered_bytes", "lent_bytes"),
    [(100, GROWTH * CHUNK_SIZE_BYTES), (700_000, 700_000), (5_000_000, TRUSTED_SIZE_BYTES)],
)
def test_a_size_delivered_before_is_trusted_up_to_a_bound(delivered_bytes: int, lent_bytes: int) -> None:
    framer = Framer(MAX_SIZE_BYTES)
    receive_all(framer, framed(bytes(delivered_bytes)))
    take_all(framer)
    receive_all(framer, framed(bytes(9_000_000))[:CHUNK_SIZE_BYTES])
    with framer.buffer() as view:
        assert len(view) == pytest.approx(lent_bytes - CHUNK_SIZE_BYTES, abs=16)
