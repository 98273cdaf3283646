"""`kafkawire brokers`: questions to the cluster, and reports of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.configs.reports import SENSITIVE, SOURCES
from kafkawire.client.brokers import Broker, LogDir, describe_brokers, describe_log_dirs, unregister_broker
from kafkawire.client.cluster import Cluster
from kafkawire.client.configs import BROKER, Resource, describe_configs
from kafkawire.client.errors import ClientError
from kafkawire.messages.describe_configs import DescribeConfigsResourceResult

AT_RUN_TIME: Final = (2, 3)  # config sources: dynamic of this broker, dynamic default of all brokers


@dataclass(slots=True)
class Described:
    """A broker with its log dirs and configs. `problem` is the reason why it did not describe itself."""

    broker: Broker
    log_dirs: Sequence[LogDir] = ()
    configs: Sequence[DescribeConfigsResourceResult] = ()
    problem: str | None = None


@dataclass(slots=True)
class Load:
    """Numbers of led partitions and of hosted replicas, by broker id."""

    led: Counter[int] = field(default_factory=Counter)
    hosted: Counter[int] = field(default_factory=Counter)


async def report_list(cluster: Cluster) -> Report:
    """`brokers list`."""
    brokers, load = await describe_brokers(cluster), await _load(cluster)
    return Report(
        document=[_document(one, load) for one in brokers.values()],
        columns=("BROKER", "ADDRESS", "RACK", "CONTROLLER", "STATE", "LEADS", "REPLICAS"),
        rows=[(one.broker_id, *(value for _, value in _facts(one, load))) for one in brokers.values()],
    )


async def report_describe(cluster: Cluster, broker_ids: Sequence[int] | None) -> Report:
    """`brokers describe`: a row for each fact about a broker."""
    brokers, load = await describe_brokers(cluster), await _load(cluster)
    wanted = list(brokers) if broker_ids is None else sorted(set(broker_ids))
    found = [await _described(cluster, brokers[one]) for one in wanted if one in brokers]
    problems = [f"there is no broker {one}" for one in wanted if one not in brokers]
    problems += [f"broker {one.broker.broker_id}: {one.problem}" for one in found if one.problem is not None]
    return Report(
        document=[_long_document(one, load) for one in found],
        columns=("BROKER", "ABOUT", "VALUE"),
        rows=[(one.broker.broker_id, *row) for one in found for row in _rows(one, load)],
        problems=problems,
    )


async def report_unregister(cluster: Cluster, broker_ids: Sequence[int]) -> Report:
    """`brokers unregister`."""
    brokers = await describe_brokers(cluster)
    problems = {one: await _unregistered(cluster, one, brokers) for one in sorted(set(broker_ids))}
    return Report(
        document=[{"broker": one, "unregistered": not problem, "error": problem} for one, problem in problems.items()],
        columns=("BROKER", "RESULT"),
        rows=[(one, problem or "unregistered") for one, problem in problems.items()],
        problems=[f"broker {one}: {problem}" for one, problem in problems.items() if problem is not None],
    )


async def _unregistered(cluster: Cluster, broker_id: int, brokers: Mapping[int, Broker]) -> str | None:
    """Unregister a broker. Return the reason if it was not unregistered.

    A broker that is up is refused. It would register again; with Kafka, it would be cut off from the others silently.
    """
    if broker_id in brokers and not brokers[broker_id].is_fenced:
        return "it is up: stop it first"
    found = await unregister_broker(cluster, broker_id)
    return None if found is None else str(found)


async def _load(cluster: Cluster) -> Load:
    load = Load()
    for topic in (await cluster.topics(None)).values():
        for row in topic.partitions:
            load.led[row.leader_id] += 1
            load.hosted.update(row.replica_nodes)
    return load


async def _described(cluster: Cluster, broker: Broker) -> Described:
    """Describe a broker. A fenced broker is not asked, because it may be down."""
    described = Described(broker)
    if broker.is_fenced:
        return described
    try:
        described.log_dirs = await describe_log_dirs(cluster, broker)
        configs = await describe_configs(cluster, Resource(BROKER, str(broker.broker_id)))
        described.configs = [one for one in configs if one.config_source in AT_RUN_TIME]
    except ClientError as error:
        described.problem = str(error)
    return described


def _facts(broker: Broker, load: Load) -> list[tuple[str, object]]:
    return [
        ("address", str(broker.address)),
        ("rack", broker.rack),
        ("controller", "yes" if broker.is_controller else "no"),
        ("state", "fenced" if broker.is_fenced else "up"),
        ("leads", load.led[broker.broker_id]),
        ("replicas", load.hosted[broker.broker_id]),
    ]


def _rows(one: Described, load: Load) -> list[tuple[str, object]]:
    dirs = [(f"log dir {log_dir.path}", _space(log_dir)) for log_dir in one.log_dirs]
    configs = [
        (f"config {config.name}", f"{_value(config)} ({SOURCES[config.config_source]})") for config in one.configs
    ]
    return [*_facts(one.broker, load), *dirs, *configs]


def _space(log_dir: LogDir) -> str:
    if log_dir.problem is not None:
        return log_dir.problem
    held = f"{log_dir.partitions_size_bytes:,} bytes in {log_dir.partitions} partitions"
    return held if log_dir.usable_bytes < 0 else f"{held}, {log_dir.usable_bytes:,} of {log_dir.total_bytes:,} free"


def _value(config: DescribeConfigsResourceResult) -> str | None:
    return SENSITIVE if config.is_sensitive else config.value


def _document(broker: Broker, load: Load) -> dict[str, object]:
    return {
        "broker": broker.broker_id,
        "host": broker.address.host,
        "port": broker.address.port,
        "rack": broker.rack,
        "controller": broker.is_controller,
        "fenced": broker.is_fenced,
        "leads": load.led[broker.broker_id],
        "replicas": load.hosted[broker.broker_id],
    }


def _long_document(one: Described, load: Load) -> dict[str, object]:
    return {
        **_document(one.broker, load),
        "log_dirs": [
            {
                "log_dir": log_dir.path,
                "partitions": log_dir.partitions,
                "bytes": log_dir.partitions_size_bytes,
                "total_bytes": _known(log_dir.total_bytes),
                "usable_bytes": _known(log_dir.usable_bytes),
                "error": log_dir.problem,
            }
            for log_dir in one.log_dirs
        ],
        "configs": [
            {"key": config.name, "value": config.value, "source": SOURCES[config.config_source]}
            for config in one.configs
        ],
    }


def _known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None
