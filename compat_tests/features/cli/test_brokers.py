"""`kafkawire brokers` as a user types it, against a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.features.cli.commands import document, refusal

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_brokers_are_listed_with_leaderships_and_described_with_log_dirs(broker: Broker, topic: str) -> None:
    document(broker, "topics", "create", topic, "--partitions", "3")
    listed = document(broker, "brokers", "list")
    assert {f"{one['host']}:{one['port']}" for one in listed} == set(broker.bootstrap.split(","))
    assert [one["controller"] for one in listed].count(True) == 1
    assert not any(one["fenced"] for one in listed)
    assert sum(one["leads"] for one in listed) >= 3
    described = document(broker, "brokers", "describe", "--all")
    assert [one["broker"] for one in described] == [one["broker"] for one in listed]
    for one in described:
        (log_dir,) = one["log_dirs"]
        assert (log_dir["error"], log_dir["partitions"]) == (None, one["replicas"])
        assert log_dir["total_bytes"] >= log_dir["usable_bytes"] > 0


def test_configs_of_a_broker_at_run_time(broker: Broker) -> None:
    broker_id = str(document(broker, "brokers", "list")[0]["broker"])
    of = ("--broker", broker_id)
    document(broker, "configs", "set", "log.cleaner.backoff.ms=12345", *of)
    try:
        (described,) = document(broker, "brokers", "describe", broker_id)
        assert {"key": "log.cleaner.backoff.ms", "value": "12345", "source": "broker"} in described["configs"]
    finally:
        document(broker, "configs", "set", "--delete", "log.cleaner.backoff.ms", *of)
    assert refusal(broker, "brokers", "describe", "4711") == "there is no broker 4711"
