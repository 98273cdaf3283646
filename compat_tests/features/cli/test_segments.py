"""`kafkawire segments` on the files of Apache Kafka: transactions, markers, and its index of aborted transactions."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.features.cli.commands import TIMEOUT_S
from compat_tests.features.transactions.readers import wait_for_markers
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.kafkawire_broker import KAFKAWIRE, Kafkawire
from compat_tests.harness.requirements import need_kafka_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TRANSACTIONS = 3
SEGMENT, ABORTED_INDEX = "00000000000000000000.log", "00000000000000000000.txnindex"


def create(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)


def write_transactions(broker: Broker) -> None:
    """Write interleaved transactions of two producers; one of them aborts all of its own."""
    aborting, committing = (
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name}) for name in ("aborts", "commits")
    )
    for one in (aborting, committing):
        one.init_transactions(TIMEOUT_S)
    for _ in range(TRANSACTIONS):
        for one in (aborting, committing):
            one.begin_transaction()
            one.produce("orders", b"record")
            one.flush(TIMEOUT_S)
        aborting.abort_transaction(TIMEOUT_S)
        committing.commit_transaction(TIMEOUT_S)
    wait_for_markers(broker, "orders")


def asked(data: Path, command: str, *arguments: str) -> Any:
    call = [str(KAFKAWIRE), "segments", command, "--data-dir", str(data), "-o", "json", *arguments]
    done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_transactions_that_kafka_wrote(tmp_path: Path) -> None:
    need_kafka_jars()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        create(kafka)
        write_transactions(kafka)
    with Kafkawire(tmp_path / "kafkawire") as ours:
        create(ours)
    for name in (SEGMENT, ABORTED_INDEX):
        shutil.copy(kafka.data_dir / "orders-0" / name, ours.data_dir / "orders-0" / name)
    [verified] = asked(ours.data_dir, "verify", "orders-0")
    assert verified["batches"] == 4 * TRANSACTIONS
    kinds = [one["kind"] for one in asked(ours.data_dir, "dump", "orders-0", "0")]
    assert sorted(kinds) == ["abort"] * 3 + ["commit"] * 3 + ["transactional"] * 6
