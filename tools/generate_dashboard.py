"""Writes docker/grafana-dashboard.json: one panel per question an operator asks first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "docker" / "grafana-dashboard.json"
BY = "sum by (instance)"
# Committed offsets come from a group's coordinator, ends from a partition's leader: perhaps two different brokers.
END = "max by (topic, partition) (kafka_topic_partition_current_offset)"
COMMITTED = "max by (consumergroup, topic, partition) (kafka_consumergroup_current_offset)"
LAG = f"sum by (consumergroup) (clamp_min(-({COMMITTED} - on (topic, partition) group_left () {END}), 0))"


def p99(histogram: str, label: str) -> str:
    return f"histogram_quantile(0.99, sum by ({label}, le) (rate({histogram}_bucket[1m])))"


def rate(counter: str, by: str = "") -> str:
    return f"sum{by and f' by ({by}) '}(rate({counter}[1m]))"


PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Records written", "ops", (("{{topic}}", rate("kafka_server_brokertopicmetrics_messagesin_total", "topic")),)),
    (
        "Bytes written and read", "Bps",
        (
            ("written", rate("kafka_server_brokertopicmetrics_bytesin_total")),
            ("read", rate("kafka_server_brokertopicmetrics_bytesout_total")),
        ),
    ),
    (
        "Latency of requests, p99", "s",
        (("{{request}}", p99("kafkawire_request_latency_seconds", "request")),),
    ),
    (
        "Writing and syncing, p99", "s",
        (
            ("write {{instance}}", p99("kafkawire_write_latency_seconds", "instance")),
            ("sync {{instance}}", p99("kafkawire_sync_latency_seconds", "instance")),
        ),
    ),
    (
        "Appends that wait for followers in sync", "short",
        (
            ("appends {{instance}}", "kafkawire_waiting_appends"),
            ("age in s of the oldest, {{instance}}", "kafkawire_waiting_appends_seconds"),
            ("connections not read {{instance}}", "kafkawire_connections_paused"),
        ),
    ),
    ("Lag of groups", "short", (("{{consumergroup}}", LAG),)),
    (
        "Transactions", "ops",
        (
            ("committed", rate("kafkawire_transactions_committed_total")),
            ("aborted", rate("kafkawire_transactions_aborted_total")),
        ),
    ),
    (
        "Behind the last stable offset", "short",
        (("{{topic}}", "sum by (topic) (kafka_cluster_partition_laststableoffsetlag)"),),
    ),
    ("Bytes kept", "bytes", (("{{topic}}", "sum by (topic) (kafka_log_log_size)"),)),
    (
        "Counts that should be zero", "short",
        (
            ("partitions offline", "max(kafka_controller_kafkacontroller_offlinepartitionscount)"),
            ("replicas that are not open", "sum(kafka_server_replicamanager_offlinereplicacount)"),
            ("partitions under-replicated", "sum(kafka_server_replicamanager_underreplicatedpartitions)"),
            ("brokers fenced", "max(kafka_controller_kafkacontroller_fencedbrokercount)"),
            ("unclean elections", "sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))"),
            ("replicas copied again", "sum(increase(kafkawire_replica_restarts_total[5m]))"),
            ("replicas closed", "sum(increase(kafkawire_replica_failures_total[5m]))"),
            ("stale leaders", "sum(kafkawire_stale_leaders)"),
            ("reads that wait to be confirmed", "sum(kafkawire_waiting_reads)"),
            ("log dirs offline", "sum(kafka_log_logmanager_offlinelogdirectorycount)"),
            ("transactions that hang", "sum(kafka_server_replicamanager_partitionswithlatetransactionscount)"),
            ("requests failed", "sum(increase(kafkawire_request_failures_total[5m]))"),
            ("partitions in trouble with the tier", "sum(kafkawire_tier_partitions_troubled)"),
        ),
    ),
    (
        "Event loop", "percentunit",
        (("rests {{instance}}", "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),),
    ),
    (
        "Event loop comes late by, p99", "s",
        (("{{instance}}", p99("kafkawire_event_loop_lag_seconds", "instance")),),
    ),
    (
        "Brokers that others see, and partitions that each leads", "short",
        (
            ("brokers", "min(kafka_controller_kafkacontroller_activebrokercount)"),
            ("{{instance}}", f"{BY} (kafka_server_replicamanager_leadercount)"),
        ),
    ),
    (
        "Elections and changes of ISRs", "short",
        (
            ("elected: {{reason}}", "sum by (reason) (increase(kafkawire_leader_elections_total[1m]))"),
            ("ISRs shrunk", "sum(increase(kafka_server_replicamanager_isrshrinks_total[1m]))"),
            ("ISRs expanded", "sum(increase(kafka_server_replicamanager_isrexpands_total[1m]))"),
            ("replicas truncated", "sum(increase(kafkawire_replica_truncations_total[1m]))"),
            ("elections that wait", "sum(kafkawire_elections_waiting)"),
        ),
    ),
    (
        "Round trips of followers, p99", "s",
        (("broker {{follower}}", p99("kafkawire_follower_round_trip_seconds", "follower")),),
    ),
    (
        "The metadata store has not answered, and its requests take (p99), for", "s",
        (
            ("age {{instance}}", "kafkawire_metadata_age_seconds"),
            ("requests {{instance}}", p99("kafkawire_metadata_request_latency_seconds", "instance")),
        ),
    ),
    (
        "ZooKeeper sessions and metadata in trouble", "short",
        (
            ("expired", "sum(increase(kafka_server_sessionexpirelistener_zookeeperexpires_total[5m]))"),
            ("disconnected", "sum(increase(kafka_server_sessionexpirelistener_zookeeperdisconnects_total[5m]))"),
            ("{{reason}}", "sum by (reason) (increase(kafkawire_metadata_errors_total[5m]))"),
            ("not applied {{instance}}", "kafkawire_metadata_publication_lag"),
        ),
    ),
    ("Connections", "short", (("{{instance}}", f"{BY} (kafkawire_connections_open)"),)),
    ("Not synced to segment files", "bytes", (("{{instance}}", f"{BY} (kafkawire_unflushed_bytes)"),)),
    (
        "Waiting to be copied to the remote tier", "bytes",
        (("{{topic}}", "sum by (topic) (kafka_server_brokertopicmetrics_remotecopylagbytes)"),),
    ),
    (
        "Bytes copied to the remote tier, and fetched from it", "Bps",
        (
            ("copied", rate("kafka_server_brokertopicmetrics_remotecopybytes_total")),
            ("fetched", rate("kafka_server_brokertopicmetrics_remotefetchbytes_total")),
        ),
    ),
    (
        "Bytes in the remote tier", "bytes",
        (("{{topic}}", "sum by (topic) (kafka_server_brokertopicmetrics_remotelogsizebytes)"),),
    ),
    (
        "Requests of the store", "ops",
        (("{{operation}} {{outcome}}", rate("kafkawire_tier_requests_total", "operation, outcome")),),
    ),
    (
        "Requests of the store, p99", "s",
        (("{{operation}}", p99("kafkawire_tier_request_latency_seconds", "operation")),),
    ),
    (
        "The store is away, and the oldest segment waits, for", "s",
        (
            ("away {{instance}}", "kafkawire_tier_store_away_seconds"),
            ("oldest {{instance}}", "kafkawire_tier_copy_oldest_seconds"),
        ),
    ),
)  # fmt: skip


def panel(number: int, title: str, unit: str, queries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """A panel with a graph; two stand side by side."""
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(queries)
        ],
    }


def dashboard() -> str:
    """The dashboard as Grafana imports it; it asks which Prometheus to read."""
    document = {
        "title": "kafkawire",
        "uid": "kafkawire",
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [panel(number, *one) for number, one in enumerate(PANELS)],
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(dashboard(), encoding="utf-8")
