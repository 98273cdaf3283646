"""Kafka's error codes."""

from __future__ import annotations

import pickle

from kafkawire.requests.errors import ErrorCode as Known
from spark_connectors.wire.codes import ErrorCode, name_of
from spark_connectors.wire.errors import BrokerError, ConnectionLost


def test_they_are_those_of_kafka() -> None:
    assert {one.name: one.value for one in ErrorCode} == {one.name: one.value for one in Known}


def test_a_code_of_later() -> None:
    assert name_of(6) == "NOT_LEADER_OR_FOLLOWER"
    assert name_of(999) == "error 999"


def test_errors_come_home_from_a_worker() -> None:
    refused = pickle.loads(pickle.dumps(BrokerError(6, "Fetch of t-0", "elsewhere")))
    assert (str(refused), refused.is_retriable) == ("Fetch of t-0: NOT_LEADER_OR_FOLLOWER: elsewhere", True)
    lost = pickle.loads(pickle.dumps(ConnectionLost("gone", True)))
    assert (str(lost), lost.was_sent) == ("gone", True)
