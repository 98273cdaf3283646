"""ZooKeeper settings from the configuration; compat_tests/features/zookeeper tests them with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.errors import CannotStart
from coordinator.metadata_store.zookeeper import ZooKeeperSettings
from kafkawire.adapters.metadata import zookeeper_settings
from kafkawire.config.broker_config import load

enforces = pytest.mark.enforces


def settings_of(**given: str) -> ZooKeeperSettings:
    properties = {name.replace("_", "."): value for name, value in given.items()}
    config, _ = load({"zookeeper.connect": "zk:2181/kafka", "inter.broker.secret.file": "/secret"} | properties)
    return zookeeper_settings(config)


@enforces("zookeeper.session.timeout.ms")
@enforces("zookeeper.connection.timeout.ms")
def test_how_long_zookeeper_and_the_broker_wait_for_each_other() -> None:
    assert settings_of() == ZooKeeperSettings("zk:2181/kafka", 18_000)
    assert settings_of().connect_within_s == 18
    given = settings_of(zookeeper_session_timeout_ms="6000", zookeeper_connection_timeout_ms="1000")
    assert (given.session_timeout_ms, given.connect_within_s) == (6_000, 1)


@enforces("zookeeper.credentials.file")
def test_zookeeper_credentials_come_from_a_file_and_a_missing_file_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    with pytest.raises(CannotStart, match=f"zookeeper.credentials.file: {path} cannot be read: No such file"):
        settings_of(zookeeper_credentials_file=str(path))
    path.write_text("broker:password\n")
    assert settings_of(zookeeper_credentials_file=str(path)).credentials == "broker:password"
