"""Requests leave, and replies come, in the order of the requests."""

from __future__ import annotations

from math import inf

import pytest

from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkawire.peers.errors import LinkFailed, SentBy
from kafkawire.peers.in_flight import InFlightRequests
from kafkawire.requests.headers import decode_request_header, response_header
from kafkawire.security.link_claim import LinkNumber
from kafkawire.wire.primitives import DecodeError

HEARTBEAT, VERSION = 12, 4
LINK = SentBy(2, bytes(16), "control", LinkNumber(1, 1))


def beat(group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id="m")


def reply(correlation_id: int, code: int = 0) -> bytearray:
    body = HeartbeatResponse(error_code=code).encode(VERSION)
    return bytearray(b"".join([response_header(HEARTBEAT, VERSION, correlation_id), *body]))


def ids(frames: list[bytes]) -> list[int]:
    return [decode_request_header(one)[0].correlation_id for one in frames]


def test_requests_leave_together_and_are_answered_one_after_the_other() -> None:
    requests = InFlightRequests("broker-1", 10)
    answers = [requests.ask(beat(), VERSION, deadline_s) for deadline_s in (1.0, 2.0)]
    assert (requests.has_waiting, requests.deadline_s) == (True, 1.0)
    assert ids(requests.take()) == [1, 2]
    assert not requests.has_waiting
    answers.append(requests.ask(beat(), VERSION, 3.0))
    assert ids(requests.take()) == [3]
    for number, code in enumerate((5, 6, 7), 1):
        assert requests.deadline_s == number
        requests.settle_oldest(reply(number, code))
    assert [one.result().error_code for one in answers] == [5, 6, 7]  # type: ignore[attr-defined]
    assert requests.deadline_s == inf


def test_a_reply_to_nothing_or_to_another_request_is_none() -> None:
    requests = InFlightRequests("broker-1", 10)
    with pytest.raises(DecodeError, match="to nothing"):
        requests.settle_oldest(reply(1))
    reply_to_it = requests.ask(beat(), VERSION, 1.0)
    with pytest.raises(DecodeError, match="to nothing"):
        requests.settle_oldest(reply(1))  # it has not left
    requests.take()
    for wrong in (reply(2), reply(1)[:5], bytearray()):
        with pytest.raises(DecodeError):
            requests.settle_oldest(wrong)
    assert not reply_to_it.is_settled


def test_a_lost_peer_connection_fails_sent_requests_and_keeps_waiting_requests() -> None:
    requests = InFlightRequests("broker-1", 10)
    sent = requests.ask(beat(), VERSION, 1.0)
    requests.take()
    waiting = requests.ask(beat(), VERSION, 1.0)
    requests.fail_sent("cut", LINK)
    with pytest.raises(LinkFailed, match="cut") as lost:
        sent.result()
    assert lost.value.sent_by == LINK
    assert not waiting.is_settled
    requests.fail_waiting("away")
    with pytest.raises(LinkFailed, match="away") as unsent:
        waiting.result()
    assert unsent.value.sent_by is None
    assert requests.take() == []


def test_a_request_repeated_from_its_callback_waits_for_the_next_peer_connection() -> None:
    requests = InFlightRequests("broker-1", 10)
    reply_to_it = requests.ask(beat(), VERSION, 1.0)
    again: list[object] = []
    reply_to_it.call_when_settled(lambda: again.append(requests.ask(beat(), VERSION, 2.0)))
    requests.fail_waiting("away")
    assert ids(requests.take()) == [2]


def test_there_is_an_end_to_how_many_wait() -> None:
    requests = InFlightRequests("broker-1", 2)
    requests.ask(beat(), VERSION, 1.0)
    requests.take()
    requests.ask(beat(), VERSION, 1.0)
    with pytest.raises(LinkFailed, match="2 requests wait"):
        requests.ask(beat(), VERSION, 1.0).result()


def test_a_request_that_its_version_cannot_carry_is_not_sent() -> None:
    requests = InFlightRequests("broker-1", 10)
    with pytest.raises(LinkFailed) as refused:
        requests.ask(FindCoordinatorRequest(key="k" * 40_000), 0, 1.0).result()
    assert refused.value.sent_by is None
    assert not requests.has_waiting
