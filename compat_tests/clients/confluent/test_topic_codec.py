"""confluent-kafka (librdkafka 2.16): topics with a codec of their own, for each codec of the producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import Delivery, create_topic, flush, producer, read
from compat_tests.harness.wire import CODECS, codec_of, stored_records

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

COUNT = 500
TYPES = {"none": "uncompressed", **{codec: codec for codec in CODECS if codec != "none"}}


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("stored", CODECS)
def test_batches_are_stored_in_the_codec_of_the_topic(broker: Broker, topic: str, sent: str, stored: str) -> None:
    """An idempotent producer with several requests in flight: no record is lost, doubled or out of order."""
    create_topic(broker, topic, config={"compression.type": TYPES[stored]})
    delivery = Delivery()
    client = producer(broker, compression_type=sent, enable_idempotence=True, linger_ms=5, batch_num_messages=50)
    values = [b"value %d " % number * 100 for number in range(COUNT)]
    for number, value in enumerate(values):
        client.produce(topic, value, key=b"%d" % number, on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    assert [message.offset() for message in delivery.messages] == list(range(COUNT))
    messages = read(broker, topic, 0, COUNT, check_crcs=True)
    assert [(one.key(), one.value()) for one in messages] == [(b"%d" % n, value) for n, value in enumerate(values)]
    assert codec_of(stored_records(broker, topic)) == stored
