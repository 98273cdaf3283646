"""The store is away for minutes while producers go on: they notice nothing, and segments are copied afterwards."""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic, producer, wait_until
from compat_tests.faults.history import History
from compat_tests.faults.writers import ConfluentWriter, padded, unpadded
from compat_tests.features.object_stores.faulty_store import FaultyStore
from compat_tests.features.object_stores.store_faults import Always
from compat_tests.features.tiering.reading_back import examined, read_back, segment_files
from compat_tests.features.tiering.tiers import QUICK, in_bucket
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.s3_server import s3_server
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

AWAY_S = float(os.environ.get("KAFKAWIRE_CHAOS_STORE_AWAY_S", "5"))
SAYS_SOMETHING_S = 60  # figures of less are told, and nothing depends on them
TOPIC = "tiered"
CONFIGS = {"remote.storage.enable": "true", "segment.ms": "500", "local.retention.bytes": "1"}
EVERY_S = 0.01
CAUGHT_UP_WITHIN_S = 120.0
P99_RATIO_MAX, P99_MORE_MAX_MS = 2.0, 20.0  # generous: a machine does other things as well


class Prober:
    """A producer of small records, one at a time; it measures the latency of acknowledgements, by phase."""

    def __init__(self, broker: Kafkawire, history: History) -> None:
        self.phase = ""
        self._took_ms: dict[str, list[float]] = {}
        self._history = history
        self._failed: list[str] = []
        self._is_over = threading.Event()
        self._client = producer(broker, enable_idempotence=True, linger_ms=0)
        self._thread = threading.Thread(target=self._probe, name="prober")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert not self._failed, self._failed[:3]

    def p99_ms(self, phase: str) -> float:
        took = sorted(self._took_ms[phase])
        return took[len(took) * 99 // 100]

    def _probe(self) -> None:
        number = 0
        while not self._is_over.wait(EVERY_S):
            began_s, phase = time.perf_counter(), self.phase
            self._client.produce(TOPIC, padded(f"probe.{number}"), partition=0, on_delivery=self._on_ack)
            assert self._client.flush(20) == 0
            self._took_ms.setdefault(phase, []).append((time.perf_counter() - began_s) * 1000)
            number += 1

    def _on_ack(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        self._history.ack(0, offset, unpadded(value.decode()))


def log_dirs_online(broker: Kafkawire) -> bool:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as reply:
        lines = [line for line in reply.read().decode().splitlines() if line.startswith("kafkawire_log_dir_online{")]
    return bool(lines) and all(line.endswith(" 1.0") for line in lines)


def test_a_store_that_is_away_is_not_noticed_by_producers(tmp_path: Path) -> None:
    history = History()
    with s3_server(tmp_path) as server, FaultyStore(server.endpoint, Always()) as proxy:
        bucket = server.make_bucket("bucket")
        with Kafkawire(tmp_path / "broker", QUICK | in_bucket(bucket, proxy.endpoint)) as broker:
            create_topic(broker, TOPIC, 1, CONFIGS)
            writer, prober = ConfluentWriter("a", broker, TOPIC, 1, history, 0.005), Prober(broker, history)
            try:
                writer.start()
                prober.start()
                wait_until(lambda: examined(server.endpoint, bucket).segments > 0, "nothing is copied")
                prober.phase = "here"
                time.sleep(AWAY_S)
                proxy.go_away()
                prober.phase = "away"
                time.sleep(3)  # requests in flight have ended by then
                copied = examined(server.endpoint, bucket).segments
                time.sleep(AWAY_S)
                assert examined(server.endpoint, bucket).segments == copied
                assert log_dirs_online(broker)
                behind = segment_files(broker, TOPIC)
                assert behind > AWAY_S / 2, "files go that the tier has not"
                proxy.come_back()
                prober.phase = "back"
                began_s = time.monotonic()
                wait_until(lambda: segment_files(broker, TOPIC) <= 3, "it does not catch up", CAUGHT_UP_WITHIN_S)
                caught_up_s = time.monotonic() - began_s
            finally:
                prober.finish()
                writer.finish()
            wait_until(lambda: segment_files(broker, TOPIC) == 1, "files stay that the tier has", CAUGHT_UP_WITHIN_S)
            anomalies = read_back(broker, TOPIC, 1, history)
        anomalies += examined(server.endpoint, bucket).problems()
    here_ms, away_ms = prober.p99_ms("here"), prober.p99_ms("away")
    summary = f"away for {AWAY_S:.0f} s: p99 of produce {here_ms:.1f} ms before, {away_ms:.1f} ms meanwhile, "
    summary += f"{behind} segments behind, copied {caught_up_s:.1f} s after it was back; "
    summary += f"{len(history.acked)} acknowledged, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, anomalies
    if AWAY_S >= SAYS_SOMETHING_S:
        assert away_ms <= max(P99_RATIO_MAX * here_ms, here_ms + P99_MORE_MAX_MS), summary
