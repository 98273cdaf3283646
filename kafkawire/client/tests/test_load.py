"""The load against a fake broker on the other end of a socket pair, which answers frame by frame."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafkawire.client import load
from kafkawire.client.connection import Address
from kafkawire.client.load import HEAD_SIZE_BYTES, Load, LoadFailed, Requests, percentile_ms

PLACE = Address("kafka-1", 9092)
HEADER_BYTES = 8

Answer = Callable[[bytes], bytes | None]  # None: the connection is closed


def receive(stream: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes and (piece := stream.recv(size_bytes - len(received))):
        received += piece
    return received


def serve(stream: socket.socket, answer: Answer) -> None:
    with stream:
        while size := receive(stream, 4):
            reply = answer(receive(stream, int.from_bytes(size, "big")))
            if reply is None:
                return
            stream.sendall(struct.pack(">i", len(reply)) + reply)


@contextmanager
def answered_by(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> Iterator[None]:
    threads = []

    def connected(address: Address) -> socket.socket:
        ours, theirs = socket.socketpair()
        threads.append(threading.Thread(target=serve, args=(theirs, answer)))
        threads[-1].start()
        return ours

    monkeypatch.setattr(load, "_connected", connected)
    yield
    for thread in threads:
        thread.join()


def frame(mark: int) -> bytearray:
    return bytearray(struct.pack(">ihhiq", 16, 0, 9, 0, mark))


def accept(head: bytes) -> None:
    if not head:
        raise LoadFailed("an empty reply")


def test_every_request_is_sent_once_and_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def answer(request: bytes) -> bytes:
        seen.append(struct.unpack_from(">iq", request, 4))
        return bytes(HEADER_BYTES)

    with answered_by(monkeypatch, answer):
        measured = Load(3).run([(PLACE, Requests([frame(7), frame(8)], 5, accept))])
    assert seen == [(0, 7), (1, 8), (2, 7), (3, 8), (4, 7)]
    assert (measured.requests, measured.sent_bytes, measured.received_bytes) == (5, 100, 60)
    assert 0 < measured.percentile_ms(0.5) <= measured.percentile_ms(1.0) <= 1000 * measured.seconds


def test_offsets_are_patched_and_long_replies_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets: list[int] = []

    def answer(request: bytes) -> bytes:
        offsets.append(struct.unpack_from(">q", request, 8)[0])
        return bytes(3_000_000)

    heads: list[bytes] = []
    requests = Requests([frame(0)], 3, heads.append, offset_position=12, offsets=(10, 20))
    with answered_by(monkeypatch, answer):
        measured = Load(2).run([(PLACE, requests)])
    assert offsets == [10, 20, 10]
    assert [len(head) for head in heads] == [HEAD_SIZE_BYTES - 4] * 3
    assert measured.received_bytes == 3 * 3_000_004


def test_no_request_is_sent_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def answer(request: bytes) -> bytes:
        clock[0] += 1
        return bytes(HEADER_BYTES)

    monkeypatch.setattr(load, "perf_counter", lambda: clock[0])
    with answered_by(monkeypatch, answer):
        measured = Load(1).run([(PLACE, Requests([frame(0)], 1000, accept))], seconds=5)
    assert (measured.requests, measured.seconds) == (5, 5)


@pytest.mark.parametrize(
    ("reply", "reason"), [(None, "the broker closed a connection"), (b"", "an empty reply")], ids=["closed", "refused"]
)
def test_a_missing_or_refused_reply_fails(monkeypatch: pytest.MonkeyPatch, reply: bytes | None, reason: str) -> None:
    with answered_by(monkeypatch, lambda request: reply), pytest.raises(LoadFailed, match=reason):
        Load(1).run([(PLACE, Requests([frame(0)], 2, accept))])


def test_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    request_arrived = threading.Event()
    over = threading.Event()

    def answer(request: bytes) -> None:
        request_arrived.set()
        over.wait()

    with answered_by(monkeypatch, answer):
        with pytest.raises(LoadFailed, match=r"no reply for 0.01 s, 1 connections unfinished"):
            Load(1, 0.01).run([(PLACE, Requests([frame(0)], 1, accept))])
        assert request_arrived.wait(10)
        over.set()


def test_percentiles() -> None:
    latencies_s = [number / 1000 for number in range(1, 101)]
    assert [percentile_ms(latencies_s, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
