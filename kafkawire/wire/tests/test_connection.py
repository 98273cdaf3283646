from __future__ import annotations

import struct

import pytest

from kafkawire.wire.connection import CloseReason, ConnectionLimits, ConnectionMachine
from kafkawire.wire.framing import CHUNK_SIZE_BYTES, GROWTH, FramingError

LIMITS = ConnectionLimits()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(number: int, size: int = 8) -> bytes:
    return bytes([number]) * size


def machine_with(*payloads: bytes, limits: ConnectionLimits = LIMITS) -> ConnectionMachine:
    machine = ConnectionMachine(limits, 0.0)
    receive(machine, b"".join(map(framed, payloads)))
    return machine


def receive(machine: ConnectionMachine, data: bytes, now_s: float = 0.0) -> None:
    while data:
        with machine.buffer() as view:
            taken = min(len(view), len(data))
            view[:taken] = data[:taken]
        machine.received(taken, now_s)
        data = data[taken:]


def start_all(machine: ConnectionMachine, *, two_stage: bool, now_s: float = 0.0) -> list[bytes]:
    """Start all requests that may start; return their frames."""
    started = []
    while (frame := machine.next_request(now_s)) is not None:
        machine.started(len(frame), two_stage=two_stage)
        started.append(bytes(frame))
    return started


def test_single_stage_request_delays_the_next_request_until_its_reply_has_left() -> None:
    machine = machine_with(request(1), request(2))
    assert start_all(machine, two_stage=False) == [request(1)]
    machine.sending(0.0, 0)
    assert start_all(machine, two_stage=False) == []
    machine.finished(0.0)
    assert start_all(machine, two_stage=False) == [request(2)]


def test_two_stage_requests_start_one_after_the_other_up_to_a_single_stage_one() -> None:
    machine = machine_with(request(1), request(2), request(3), request(4))
    for number, two_stage in ((1, True), (2, True), (3, False)):
        assert machine.next_request(0.0) == bytearray(request(number))
        machine.started(8, two_stage=two_stage)
    assert machine.next_request(0.0) is None
    machine.finished(0.0)
    machine.finished(0.0)
    assert machine.next_request(0.0) is None
    machine.finished(0.0)
    assert machine.next_request(0.0) == bytearray(request(4))


def test_the_17th_request_waits_and_nothing_more_is_read() -> None:
    machine = machine_with(*map(request, range(20)))
    assert len(start_all(machine, two_stage=True)) == 16
    assert not machine.may_read
    machine.finished(0.0)
    receive(machine, b"more")  # would fail if nothing could be read
    assert start_all(machine, two_stage=True) == [request(16)]


def test_a_request_starts_only_below_32_mib_in_flight() -> None:
    machine = machine_with()
    for number in range(3):
        receive(machine, framed(bytes([number]) * (16 * 1024 * 1024)))
        if number < 2:
            assert len(start_all(machine, two_stage=True)) == 1
    assert start_all(machine, two_stage=True) == []
    assert machine.held_size_bytes == 3 * 16 * 1024 * 1024
    machine.finished(0.0)
    assert len(start_all(machine, two_stage=True)) == 1


def test_large_frame_counts_as_the_memory_that_its_received_bytes_need() -> None:
    machine = machine_with()
    receive(machine, struct.pack(">i", 10_000_000) + bytes(1000))
    assert machine.held_size_bytes == 0
    receive(machine, bytes(100_000))
    assert machine.wants_large_buffer
    assert machine.large_size_bytes == machine.held_size_bytes
    assert 100_000 < machine.held_size_bytes <= GROWTH * 101_000
    receive(machine, bytes(10_000_000 - 101_000))
    assert machine.held_size_bytes == 10_000_000


@pytest.mark.parametrize("size", [-1, 0, 7, 100 * 1024 * 1024 + 1])
def test_an_impossible_size_is_an_error(size: int) -> None:
    machine = machine_with()
    receive(machine, struct.pack(">i", size))
    with pytest.raises(FramingError):
        machine.next_request(0.0)


def test_after_a_refusal_nothing_is_read_or_started_and_the_first_reason_stays() -> None:
    machine = machine_with(request(1), request(2))
    machine.next_request(0.0)
    machine.started(8, two_stage=True)
    machine.refuse(CloseReason.PROTOCOL_VIOLATION, 0.0)
    machine.refuse(CloseReason.SHUTDOWN, 0.0)
    assert machine.refusal is CloseReason.PROTOCOL_VIOLATION
    assert not machine.may_read
    assert machine.next_request(0.0) is None


# Deadlines: (earlier events, time of the deadline, reason)


def test_an_idle_connection_is_overdue_after_the_idle_timeout() -> None:
    machine = machine_with()
    assert machine.overdue(600.0, 0) is None
    assert machine.overdue(600.1, 0) is CloseReason.IDLE
    receive(machine, framed(request(1)), now_s=600.0)
    assert machine.overdue(600.1, 0) is None


def test_request_in_flight_is_not_idle_and_its_end_restarts_the_idle_time() -> None:
    machine = machine_with(request(1))
    start_all(machine, two_stage=False)
    assert machine.overdue(10_000.0, 0) is None
    machine.finished(10_000.0)
    assert machine.overdue(10_600.0, 0) is None
    assert machine.overdue(10_601.0, 0) is CloseReason.IDLE


def test_incomplete_frame_is_overdue_after_its_timeout() -> None:
    machine = machine_with()
    receive(machine, framed(request(1))[:10])
    assert start_all(machine, two_stage=False) == []
    assert machine.overdue(30.0, 0) is None
    assert machine.overdue(30.1, 0) is CloseReason.HALF_FRAME
    receive(machine, framed(request(1))[10:], now_s=29.0)
    assert len(start_all(machine, two_stage=False, now_s=29.0)) == 1
    assert machine.overdue(1000.0, 0) is None


def test_a_slow_but_steady_sender_has_as_much_time_again_and_a_quick_start_buys_none() -> None:
    machine = machine_with()
    receive(machine, struct.pack(">i", 50_000_000) + bytes(9))
    start_all(machine, two_stage=False)
    receive(machine, bytes(26 << 20), now_s=1.0)
    assert machine.overdue(31.0, 0) is None
    assert machine.overdue(61.0, 0) is None
    assert machine.overdue(61.5, 0) is CloseReason.HALF_FRAME
    receive(machine, bytes(31 * 64 * 1024), now_s=61.5)
    assert machine.overdue(61.6, 0) is None
    assert machine.overdue(91.6, 0) is None
    assert machine.overdue(91.7, 0) is CloseReason.HALF_FRAME


def test_half_a_frame_that_we_leave_unread_is_not_the_peers_fault() -> None:
    machine = machine_with()
    receive(machine, framed(request(1))[:3])
    start_all(machine, two_stage=False)
    machine.reading_paused(0.0)
    assert machine.overdue(100.0, 0) is None
    machine.reading_resumed(100.0)
    assert machine.overdue(130.0, 0) is None
    assert machine.overdue(130.1, 0) is CloseReason.HALF_FRAME


def test_half_a_frame_behind_a_request_in_flight_is_not_timed() -> None:
    machine = machine_with(request(1))
    receive(machine, framed(request(1))[:3])
    start_all(machine, two_stage=False)
    assert machine.overdue(100.0, 0) is None
    machine.finished(100.0)
    start_all(machine, two_stage=False, now_s=100.0)
    assert machine.overdue(130.1, 0) is CloseReason.HALF_FRAME


def test_a_reader_that_takes_nothing_is_overdue_and_a_steady_one_has_as_much_time_again() -> None:
    machine = machine_with(request(1))
    start_all(machine, two_stage=False)
    machine.sending(5.0, 100)
    assert machine.overdue(35.0, 100) is None
    assert machine.overdue(35.1, 100) is CloseReason.SLOW_READER
    steady = 100 + 30 * 64 * 1024
    assert machine.overdue(35.1, steady - 1) is CloseReason.SLOW_READER
    assert machine.overdue(35.1, steady) is None
    assert machine.overdue(65.1, steady) is None
    assert machine.overdue(65.2, steady) is CloseReason.SLOW_READER


def test_last_replies_have_a_deadline_except_at_shutdown_where_the_server_has_one() -> None:
    for reason, expected in ((CloseReason.FRAME_SIZE, CloseReason.SLOW_DRAIN), (CloseReason.SHUTDOWN, None)):
        machine = machine_with(request(1))
        start_all(machine, two_stage=True)
        machine.refuse(reason, 0.0)
        assert machine.overdue(29.0, 0) is None
        assert machine.overdue(31.0, 0) is expected


def test_a_large_frame_that_we_have_no_room_for_is_not_waited_for_without_end() -> None:
    machine = machine_with()
    receive(machine, struct.pack(">i", 10_000_000) + bytes(CHUNK_SIZE_BYTES))
    start_all(machine, two_stage=False)
    assert machine.large_size_bytes > 0
    machine.reading_paused(10.0)
    machine.reading_paused(20.0)
    assert machine.overdue(40.0, 0) is None
    assert machine.overdue(40.1, 0) is CloseReason.NO_ROOM


def test_requests_received_before_the_peer_left_still_start_in_order() -> None:
    machine = machine_with(request(1), request(2))
    receive(machine, framed(request(3))[:5])
    assert start_all(machine, two_stage=False) == [request(1)]
    machine.peer_left(5.0)
    assert not machine.may_read
    machine.finished(20.0)
    assert start_all(machine, two_stage=False, now_s=20.0) == [request(2)]
    assert machine.overdue(50.0, 0) is None
    assert machine.overdue(50.1, 0) is CloseReason.CLOSED_BY_PEER
    machine.finished(60.0)
    assert start_all(machine, two_stage=False, now_s=60.0) == []
