"""Writes docker/grafana-dashboard.json: one panel per question an operator asks first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "docker" / "grafana-dashboard.json"
BY = "sum by (instance)"
# What a group has committed its coordinator tells, where a partition ends its leader: in a cluster they may be two.
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
        "What should be none", "short",
        (
            ("partitions offline", "max(kafka_controller_kafkacontroller_offlinepartitionscount)"),
            ("partitions under-replicated", "sum(kafka_server_replicamanager_underreplicatedpartitions)"),
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
    """A graph; two stand side by side."""
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
    """As Grafana imports it; it asks which Prometheus to read."""
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
