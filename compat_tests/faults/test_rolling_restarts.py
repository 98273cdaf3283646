"""Three brokers that replicate are restarted in turn: no stock client gets an error, and nothing is lost or doubled."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.faults.campaign import PARTITIONS, finish, read_all
from compat_tests.faults.copies import check_copies
from compat_tests.faults.history import History
from compat_tests.faults.in_sync import wait_until_in_sync
from compat_tests.faults.readers import Readers
from compat_tests.faults.spark_copy import OUTPUT, SparkCopy
from compat_tests.faults.spark_copy import STOCK as STOCK_SPARK
from compat_tests.faults.transformation import values_of
from compat_tests.faults.writers import JavaWriter, WriterProcess, confluent, stock
from compat_tests.harness.cluster import SIZE, KafkawireCluster
from compat_tests.harness.requirements import need_kafka_jars, need_spark_jars, need_zookeeper_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

ROLLS: Final = int(os.environ.get("KAFKAWIRE_CHAOS_ROLLS", "1"))
TOPIC: Final = "through-restarts"
TOPIC_CONFIG: Final = {"min.insync.replicas": "2", "segment.bytes": str(1 << 20)}
CONFIG: Final = {"zookeeper.session.timeout.ms": "6000", "group.initial.rebalance.delay.ms": "0"}
STOCK: Final = ("kafka_python", "aiokafka", "franz-go")
READERS: Final = ("java", "confluent", *STOCK)
RECORDS_PER_S: Final = 50  # of each writer
SPARK_BEGINS_WITHIN_S: Final = 90.0
# Pause between two restarts. Without it, each broker is restarted every twelve seconds. librdkafka waits longer before
# each reconnection (up to ten seconds, reconnect.backoff.max.ms), and in the end finds no usable broker. Then 2.16.0
# bootstraps again (KIP-899) and hangs for good: its last log line is "Decommissioning 3 broker(s): re-bootstrap".
PAUSE_S: Final = 5.0


def roll(cluster: KafkawireCluster) -> None:
    for one in cluster.brokers.values():
        wait_until_in_sync(cluster.brokers.values())
        assert one.stop() == 0, one.log_tail()
        one.start()
        time.sleep(PAUSE_S)


def test_no_client_hears_of_brokers_that_are_restarted_in_turn(tmp_path: Path) -> None:
    need_kafka_jars()
    need_zookeeper_jars()
    need_spark_jars()
    history = History()
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkawireCluster(tmp_path / "cluster", CONFIG))
        for topic in (TOPIC, OUTPUT):
            create_topic(cluster, topic, PARTITIONS, TOPIC_CONFIG, replicas=SIZE)
        writers: list[JavaWriter | WriterProcess] = [
            JavaWriter(7, cluster, TOPIC, tmp_path, history, RECORDS_PER_S),
            confluent(cluster, TOPIC, 0, "confluent", history, RECORDS_PER_S),
            *(stock(client, cluster, TOPIC, PARTITIONS, history, RECORDS_PER_S) for client in STOCK),
        ]
        for writer in writers:
            stack.callback(writer.end)
            writer.start()
        readers = stack.enter_context(Readers(cluster, TOPIC, PARTITIONS, READERS))
        spark = SparkCopy(cluster, tmp_path / "spark-copy", TOPIC, STOCK_SPARK)
        stack.callback(spark.end)
        spark.start()
        wait_until(lambda: any(spark.copied().values()), "Spark does not begin", SPARK_BEGINS_WITHIN_S)
        begun_s = time.monotonic()
        for _ in range(ROLLS):
            roll(cluster)
        lasted_s = time.monotonic() - begun_s
        wait_until_in_sync(cluster.brokers.values())
        complaints = finish(writers)
        readers.wait_until_all_is_committed()
        complaints += readers.complaints()
        inputs = values_of(cluster, TOPIC)
        spark.wait_for_all(inputs)
        complaints += spark.failures()
        read = read_all(cluster, TOPIC)
        anomalies = history.check(read) + readers.anomalies(read) + check_copies(inputs, spark.copied())
    summary = f"{ROLLS} rolling restarts in {lasted_s:.0f} s, {len(history.acked)} records acknowledged and read by "
    summary += f"{len(READERS)} clients and copied by Spark, {len(complaints)} errors heard, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    wrong = "\n".join(complaints + anomalies)
    assert not wrong, wrong
    assert len(history.acked) > 100 * ROLLS, "too few acknowledgements between the restarts"
