"""Records that librdkafka takes for written without an offset: it may be deceived, and a campaign finds it out.

librdkafka concludes so in two cases. If a batch failed with a retriable error and a later batch is acknowledged, it
takes the first one for written: a broker takes no batch that does not follow (`rd_kafka_dr_implicit_ack`). If a batch
was sent again and is answered DUPLICATE_SEQUENCE_NUMBER, it was written before
(`rd_kafka_handle_idempotent_Produce_error`). Campaigns look for brokers that lose a batch and take the next one, or
answer so without cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from compat_tests.faults.history import NO_OFFSET, History
from compat_tests.faults.scripted_leader import TOPIC, ScriptedLeader, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
DUPLICATE_SEQUENCE_NUMBER: Final = 46
WITHIN_S: Final = 30.0


def write_two(script: Sequence[Verdict]) -> tuple[History, ScriptedLeader]:
    """Write two batches of a record each, in flight together."""
    history = History()

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        value, offset = message.value(), message.offset()
        assert isinstance(value, bytes)
        history.ack(0, NO_OFFSET if offset is None else offset, value.decode())

    with ScriptedLeader(script) as leader:
        settings = {"enable.idempotence": True, "batch.num.messages": 1, "retry.backoff.ms": 20}
        client = Producer({"bootstrap.servers": leader.bootstrap, **settings})
        for number in range(2):
            client.produce(TOPIC, f"w.{number}", partition=0, on_delivery=on_delivery)
        assert client.flush(WITHIN_S) == 0, "records are still under way"
    return history, leader


@pytest.mark.parametrize(
    ("of_the_first", "anomalies"),
    [
        (Verdict(1, NOT_ENOUGH_REPLICAS_AFTER_APPEND), []),
        (Verdict(0, NOT_ENOUGH_REPLICAS), ["lost"]),
        (Verdict(0, NOT_ENOUGH_REPLICAS_AFTER_APPEND), ["lost"]),
        (Verdict(1, DUPLICATE_SEQUENCE_NUMBER), []),
        (Verdict(0, DUPLICATE_SEQUENCE_NUMBER), ["lost"]),
        (Verdict(2, DUPLICATE_SEQUENCE_NUMBER), ["reordered", "doubled"]),
    ],
)
def test_records_librdkafka_wrongly_takes_for_written_are_found(of_the_first: Verdict, anomalies: list[str]) -> None:
    history, leader = write_two([of_the_first, Verdict(1)])
    assert [(value, place.offset == NO_OFFSET) for place, value in history.acked] == [("w.0", True), ("w.1", False)]
    assert [line.partition(" x ")[0] for line in history.check(leader.log)] == anomalies
