"""Three brokers under idempotent librdkafka and Java producers: faults of one broker lose no record."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.faults import campaign
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.requirements import need_zookeeper_jars
from compat_tests.harness.zookeeper import zookeeper_ensemble

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

KILLS = int(os.environ.get("KAFKAWIRE_CHAOS_KILLS", "5"))
ROLLS = int(os.environ.get("KAFKAWIRE_CHAOS_ROLLS", "1"))
AWAY_S = float(os.environ.get("KAFKAWIRE_ZOOKEEPER_AWAY_S", "25"))  # more than a session
QUICK_SESSIONS = {"zookeeper.session.timeout.ms": "6000"}


@pytest.fixture
def cluster(tmp_path: Path) -> KafkawireCluster:
    need_zookeeper_jars()
    return KafkawireCluster(tmp_path / "cluster", QUICK_SESSIONS)


def kill_of_one_of_three(broker: Broker) -> None:
    assert isinstance(broker, KafkawireCluster)
    random.choice(list(broker.brokers.values())).kill()


def restart_of_all_in_turn(broker: Broker) -> None:
    assert isinstance(broker, KafkawireCluster)
    for one in broker.brokers.values():
        assert one.stop() == 0
        one.start()


def test_kills_lose_nothing(cluster: KafkawireCluster, tmp_path: Path) -> None:
    campaign.run(cluster, tmp_path, kill_of_one_of_three, KILLS)


def test_rolling_restarts_lose_nothing_and_no_client_hears_of_an_error(
    cluster: KafkawireCluster, tmp_path: Path
) -> None:
    campaign.run(cluster, tmp_path, restart_of_all_in_turn, ROLLS)


def test_while_zookeeper_is_away_records_come_and_go(tmp_path: Path) -> None:
    need_zookeeper_jars()
    with zookeeper_ensemble(tmp_path / "zookeeper", size=1) as ensemble:
        cluster = KafkawireCluster(tmp_path / "cluster", QUICK_SESSIONS, ensemble.connect)

        def absence_of_zookeeper(broker: Broker) -> None:
            ensemble.kill()
            time.sleep(AWAY_S)
            assert broker.is_alive
            ensemble.start()

        campaign.run(cluster, tmp_path, absence_of_zookeeper, 1)
