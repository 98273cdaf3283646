"""A broker with a faulty store: it sends damaged bytes, or fails requests."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from compat_tests.clients.confluent.clients import Delivery, create_topic, flush, producer, wait_until
from compat_tests.faults.writers import padded
from compat_tests.features.object_stores.faulty_store import FaultyStore
from compat_tests.features.object_stores.store_faults import NO_FAULT, Always, Decision, Fault, StoreRequest
from compat_tests.features.tiering.cold_reader import ColdReader
from compat_tests.features.tiering.reading_back import segment_files
from compat_tests.features.tiering.tiers import QUICK, in_bucket
from compat_tests.harness.broker import BrokerFailedError
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.s3_server import s3_server

if TYPE_CHECKING:
    from pathlib import Path

SEED = 11
TOPIC = "tiered"
CONFIGS = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
RECORDS = 20_000
LIVES = 2
WITHIN_S = 60.0
HARM: Final = (
    Fault.FLIPPED_BODY, Fault.FLIPPED_BODY, Fault.SHORT_BODY, Fault.REPLY_LOST, Fault.REQUEST_LOST, Fault.SLOW_DOWN,
)  # fmt: skip


class Harm:
    """A plan that damages more than every second read of a segment."""

    def __init__(self) -> None:
        self._choice = random.Random(SEED)

    def decide(self, request: StoreRequest) -> Decision:
        if request.kind != "GET segment" or self._choice.random() < 0.4:
            return NO_FAULT
        return Decision(self._choice.choice(HARM))


def write(broker: Kafkawire) -> list[str]:
    values = [f"a.{number}" for number in range(RECORDS)]
    client, delivery = producer(broker, enable_idempotence=True, queue_buffering_max_messages=RECORDS), Delivery()
    for value in values:
        client.produce(TOPIC, padded(value), partition=0, on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    return values


def test_damaged_bytes_from_the_store_are_never_served(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server, FaultyStore(server.endpoint, Harm()) as proxy:
        broker = Kafkawire(tmp_path / "broker", QUICK | in_bucket(server.make_bucket("bucket"), proxy.endpoint))
        with broker:
            create_topic(broker, TOPIC, 1, CONFIGS)
            values = write(broker)
            wait_until(lambda: segment_files(broker, TOPIC) == 1, "files stay that the tier has", WITHIN_S)
            for _ in range(LIVES):  # each begins with an empty cache
                reader = ColdReader(broker, TOPIC, 1)
                reader.start()
                try:
                    wait_until(lambda: len(reader.values(0)) == RECORDS, "reads do not get on", WITHIN_S)  # noqa: B023
                finally:
                    reader.stop()
                assert reader.anomalies == []
                assert reader.values(0) == values
                broker.kill()
                broker.start()
        faults = proxy.faults()
        assert faults["GET segment", Fault.FLIPPED_BODY] > 0
        assert sum(faults.values()) > 2 * LIVES


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (Fault.UNCONDITIONAL, r"tier\.store: the store ignores If-None-Match"),
        (Fault.SKEWED, r"tier\.store: the store refuses: .*RequestTimeTooSkewed"),
    ],
)
def test_a_store_that_the_tier_cannot_live_with_stops_the_start(tmp_path: Path, fault: Fault, line: str) -> None:
    with s3_server(tmp_path) as server, FaultyStore(server.endpoint, Always(Decision(fault))) as proxy:
        broker = Kafkawire(tmp_path / "broker", QUICK | in_bucket(server.make_bucket("bucket"), proxy.endpoint))
        with pytest.raises(BrokerFailedError, match=line):
            broker.start()


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.CONFLICT, Fault.REPLY_LOST])
def test_a_busy_store_does_not_stop_the_start(tmp_path: Path, fault: Fault) -> None:
    with s3_server(tmp_path) as server, FaultyStore(server.endpoint, Always(Decision(fault))) as proxy:
        bucket = server.make_bucket("bucket")
        with Kafkawire(tmp_path / "broker", QUICK | in_bucket(bucket, proxy.endpoint)) as broker:
            assert "cannot be reached" in broker.log_path.read_text()
