"""Brokers of three that replicate are killed under a word count with exactly_once_v2: each word counts once."""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Final

from compat_tests.applications.streams.test_streams import Counts, word_count, write
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.faults.campaign import SEED
from compat_tests.faults.in_sync import wait_until_in_sync
from compat_tests.harness.cluster import SIZE, KafkawireCluster
from compat_tests.harness.requirements import need_command, need_kafka_jars, need_zookeeper_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

KILLS: Final = int(os.environ.get("KAFKAWIRE_CHAOS_STREAMS_KILLS", "1"))
CONFIG: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
NAME: Final = "through-failovers"
PARTITIONS: Final = 2
TIMES: Final = 20


def test_each_word_counts_once_whichever_broker_is_killed(tmp_path: Path) -> None:
    need_kafka_jars()
    need_zookeeper_jars()
    need_command("javac", "install a JDK, 17 or newer")
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    choice = random.Random(SEED)
    with KafkawireCluster(tmp_path / "cluster", CONFIG) as cluster:
        for topic in (f"{NAME}-sentences", f"{NAME}-results"):
            create_topic(cluster, topic, PARTITIONS, replicas=SIZE)
        expected: Counter[str] = Counter()
        with (
            closing(Counts(cluster, NAME)) as counts,
            word_count(cluster, tmp_path, "exactly_once_v2", NAME) as application,
        ):
            for _ in range(KILLS):
                expected += write(cluster, NAME, TIMES)
                application.wait_for(counts, expected)
                expected += write(cluster, NAME, TIMES)
                choice.choice(list(cluster.brokers.values())).kill()
                expected += write(cluster, NAME, TIMES)
                application.wait_for(counts, expected)
                cluster.start()
                wait_until_in_sync(cluster.brokers.values())
    summary = f"seed {SEED}, {KILLS} x kill -9 of a broker, {expected.total()} words, each counted once"
    print(summary)
    note_for_ledger(summary)
