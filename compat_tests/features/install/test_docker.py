"""The files in docker/: each is read by the tool that it is meant for, or by that tool's own checker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.harness.kafkawire_broker import KAFKAWIRE, Kafkawire
from compat_tests.harness.requirements import ROOT, need_command, need_promtool
from compat_tests.harness.tools import run
from kafkawire.config.broker_config import load
from kafkawire.config.properties import gather

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkawire.config.broker_config import Config

DOCKER = ROOT / "docker"
COPY = re.compile(r"^COPY (?!--from)(.*) \S+$", re.MULTILINE)
SERVICE = re.compile(r"^  (\S+):\n((?: {4}.*\n)+)", re.MULTILINE)
METRIC = re.compile(r"\b(?:kafka|kafkawire|redpanda)_\w+")
NAMED = re.compile(r"`(…?)(\w+)`")  # `…_total` goes on where the name before it has an underscore


def test_the_image() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    assert run([str(hadolint), str(DOCKER / "Dockerfile")]) == ""


def test_every_path_that_the_dockerfile_copies_is_in_the_build_context() -> None:
    everything, *rules = (ROOT / ".dockerignore").read_text().split()
    given = {PurePosixPath(rule[1:]) for rule in rules if rule.startswith("!")}
    copied = " ".join(COPY.findall((DOCKER / "Dockerfile").read_text())).split()
    sources = [PurePosixPath(name) for name in copied]
    assert (everything, len(sources) > 5) == ("*", True)
    assert [name for name in sources if not given & {name, *name.parents}] == []


def test_the_health_check_asks_where_the_environment_says(tmp_path: Path) -> None:
    [command] = re.findall(r"^HEALTHCHECK .*\\\n +CMD (.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    check = [sys.executable, *json.loads(command)[1:]]

    def code(address: str) -> int:
        environment = {"KAFKA_HTTP_LISTENERS": address}
        return subprocess.run(check, env=environment, capture_output=True, timeout=60, check=False).returncode

    with Kafkawire(tmp_path) as broker:
        assert [code(f"http://{host}:{broker.http_port}") for host in ("", "0.0.0.0", "127.0.0.1")] == [0, 0, 0]
        assert (code(""), code("http://127.0.0.1:1")) == (0, 1)


def composed(*names: str) -> dict[str, str]:
    """The text of each service in these files, as docker-compose understands them."""
    compose = need_command("docker-compose", "make system-deps")
    files = [part for name in names for part in ("--file", str(DOCKER / name))]
    understood = run([compose, *files, "config"])
    return dict(SERVICE.findall(understood[understood.index("services:") :].partition("\nvolumes:")[0] + "\n"))


def settings_of(service: str) -> dict[str, str]:
    return dict(re.findall(r"""^ +(\w+): ["']?(.*?)["']?$""", service, re.MULTILINE))


def config_of(service: str) -> Config:
    environment = {name: value for name, value in settings_of(service).items() if name.startswith("KAFKA_")}
    config, warnings = load(gather(None, environment, ()).values)
    assert warnings == []
    return config


def test_the_compose_file_of_one_broker() -> None:
    [broker] = composed("compose.single.yaml").values()
    assert "- 127.0.0.1:9092:9092/tcp\n" in broker
    assert f"context: {ROOT}\n" in broker
    assert not config_of(broker).is_in_cluster


@pytest.mark.parametrize(("number", "port"), [(1, 9092), (2, 9093), (3, 9094)])
def test_the_compose_file_of_three_brokers(number: int, port: int) -> None:
    broker = composed("compose.yaml")[f"kafkawire-{number}"]
    config = config_of(broker)
    assert (config.node_id, config.zookeeper_connect) == (number, "zookeeper:2181/kafka")
    advertised = {(one.name, one.host, one.port) for one in config.advertised_listeners}
    assert advertised == {(config.inter_broker_listener, f"kafkawire-{number}", 29092), ("HOST", "localhost", port)}
    assert config.http_allowed_hosts == (f"kafkawire-{number}",)
    assert {f"127.0.0.1:{port}:{port}/tcp", f"127.0.0.1:{9643 + number}:9644/tcp"} <= told(broker)
    assert {f"data-{number}:/var/lib/kafkawire:rw", "secret:/run/cluster:ro"} <= told(broker)
    assert str(config.inter_broker_secret_file) == "/run/cluster/secret"


def told(service: str) -> set[str]:
    """The items of all lists of a service."""
    return set(re.findall(r"^ +- (.*)$", service, re.MULTILINE))


def test_files_that_containers_are_given_are_there() -> None:
    given = [each.split(":")[0] for one in composed("compose.yaml").values() for each in told(one) if each[0] == "/"]
    assert len(given) == 5
    assert [file for file in given if not Path(file).is_file()] == []


def test_the_secret_of_the_three_brokers_is_made_once(tmp_path: Path) -> None:
    [script] = re.findall(r"- (umask .*)$", composed("compose.yaml")["secret"].replace("\n     ", ""), re.MULTILINE)
    assert "chown 9092 " in script  # the user of the image
    here = script.replace("/run/cluster", str(tmp_path)).replace("9092", str(os.getuid()))

    def secret() -> tuple[str, int]:
        run(["sh", "-c", here])
        (file,) = tmp_path.iterdir()
        return file.read_text(), file.stat().st_mode & 0o777

    made = secret()
    assert (len(made[0]) > 40, made[1]) == (True, 0o600)
    assert secret() == made


def test_prometheus_and_grafana_are_configured_with_brokers_alerts_and_dashboard() -> None:
    """Prometheus finds the brokers and the alerts, Grafana the dashboard."""
    checked = run([str(need_promtool()), "check", "config", str(DOCKER / "prometheus.yml")])
    assert f"{(DOCKER / 'alerts.yaml').read_text().count('- alert:')} rules found" in checked
    services = composed("compose.yaml")
    brokers = [f'"{name}:9644"' for name in services if "kafkawire" in name]
    assert f"targets: [{', '.join(brokers)}]" in (DOCKER / "prometheus.yml").read_text()
    assert "url: http://prometheus:9090\n" in (DOCKER / "grafana-datasource.yaml").read_text()
    home = PurePosixPath(settings_of(services["grafana"])["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert f"path: {home.parent}\n" in (DOCKER / "grafana-dashboards.yaml").read_text()
    assert f"{DOCKER / home.name}:{home}:ro" in told(services["grafana"])


def test_the_compose_file_with_a_tier() -> None:
    services = composed("compose.single.yaml", "compose.tier.yaml")
    config, said = config_of(services["kafkawire"]), settings_of(services["s3"])
    assert str(config.tier_store) == "s3://kafka/lake"
    assert config.tier_s3_endpoint == "http://s3:7070"
    assert ":7070" in told(services["s3"])
    keys = config.tier_s3_access_key, config.tier_s3_secret_key
    assert keys == (said["ROOT_ACCESS_KEY"], said["ROOT_SECRET_KEY"])


def test_the_service(tmp_path: Path) -> None:
    analyze = need_command("systemd-analyze", "install systemd")
    unit = (DOCKER / "kafkawire.service").read_text()
    here = tmp_path / "kafkawire.service"
    here.write_text(unit.replace("/opt/kafkawire/bin/kafkawire", str(KAFKAWIRE)))
    assert str(KAFKAWIRE) in here.read_text()
    assert run([analyze, "verify", "--recursive-errors=no", str(here)], check=False) == ""


def test_the_alert_rules() -> None:
    assert "SUCCESS" in run([str(need_promtool()), "check", "rules", str(DOCKER / "alerts.yaml")])


def test_the_alerts_of_the_remote_tier(tmp_path: Path) -> None:
    """Each alert, with metric values one minute apart: silent at one minute, firing at the next."""
    broker = 'instance="a",job="kafkawire"'
    cases = [
        ("KafkawireTierStoreAway", f"kafkawire_tier_store_away_seconds{{{broker}}}", "0 0 30 90 150 210", 3, 5),
        ("KafkawireTierCopyLags", f"kafkawire_tier_copy_oldest_seconds{{{broker}}}", "840+60x10", 6, 7),
        ("KafkawireTierTrouble", f"kafkawire_tier_partitions_troubled{{{broker}}}", "0 1x8", 5, 7),
    ]

    try_rules(tmp_path, [alert_case(*one) for one in cases])


def test_the_alerts_of_replication_and_of_writing(tmp_path: Path) -> None:
    broker = 'instance="a",job="kafkawire"'
    group = 'consumergroup="g",topic="t",partition="0"'
    cases = [
        (
            "KafkawireUnderReplicated",
            f"kafka_server_replicamanager_underreplicatedpartitions{{{broker}}}",
            "0 2x9",
            5,
            7,
        ),
        ("KafkawireReplicasOffline", f"kafka_server_replicamanager_offlinereplicacount{{{broker}}}", "0 1x9", 2, 4),
        ("KafkawireUnderMinIsr", f"kafka_server_replicamanager_underminisrpartitioncount{{{broker}}}", "0 1x6", 1, 3),
        (
            "KafkawireUncleanElection",
            f"kafka_controller_controllerstats_uncleanleaderelections_total{{{broker}}}",
            "0 0 0 1x9",
            2,
            4,
        ),
        ("KafkawireReplicaFailed", f"kafkawire_replica_failures_total{{{broker}}}", "0 0 0 1x9", 2, 4),
        ("KafkawireReplicaRestarted", f"kafkawire_replica_restarts_total{{{broker}}}", "0 0 0 1x9", 2, 4),
        ("KafkawireBrokerFenced", f"kafka_controller_kafkacontroller_fencedbrokercount{{{broker}}}", "0 1x9", 5, 7),
        (
            "KafkawireFollowerSlow",
            f'kafkawire_follower_round_trip_seconds_bucket{{{broker},follower="2",le="+Inf"}}',
            "0+60x20",
            4,
            9,
        ),
        ("KafkawireIsrsUnstable", f"kafka_server_replicamanager_isrshrinks_total{{{broker}}}", "0+1x20", 3, 12),
        ("KafkawireReplicaLags", f'kafkawire_replica_lag_seconds{{{broker},follower="2"}}', "4 5 6x6", 2, 4),
        ("KafkawireUnflushed", f"kafkawire_unflushed_bytes{{{broker}}}", "900000000 1100000000x9", 5, 7),
        ("KafkawireStrays", f'kafkawire_strays{{{broker},dir="/data"}}', "0 0 1x9", 1, 3),
        ("KafkawireWritesSlow", f'kafkawire_write_latency_seconds_bucket{{{broker},le="+Inf"}}', "0+60x20", 4, 9),
        ("KafkawireGroupLags", f"kafka_consumergroup_current_offset{{{broker},{group}}}", "0x20", 9, 11),
    ]
    beside = {  # other series at the same time
        "KafkawireWritesSlow": {
            f'kafkawire_write_latency_seconds_bucket{{{broker},le="{le}"}}': "0x20" for le in (0.1, 0.2)
        },
        "KafkawireFollowerSlow": {
            f'kafkawire_follower_round_trip_seconds_bucket{{{broker},follower="2",le="{le}"}}': "0x20"
            for le in (1.0, 2.5)
        },
        "KafkawireIsrsUnstable": {f"kafka_server_replicamanager_leadercount{{{broker}}}": "2x20"},
        "KafkawireGroupLags": {
            f'kafka_topic_partition_current_offset{{{broker},topic="t",partition="0"}}': "1100000x20"
        },
    }
    try_rules(tmp_path, [alert_case(*one, beside=beside.get(one[0], {})) for one in cases])


def test_the_alerts_of_the_metadata(tmp_path: Path) -> None:
    broker = 'instance="a",job="kafkawire"'
    cases = [
        ("KafkawireMetadataSilent", f"kafkawire_metadata_age_seconds{{{broker}}}", "0 6 19 79 139 199", 3, 5),
        (
            "KafkawireMetadataUnusable",
            f'kafkawire_metadata_errors_total{{{broker},reason="malformed"}}',
            "0 0 0 1 2 3x5",
            2,
            5,
        ),
        ("KafkawireMetadataNotApplied", f"kafkawire_metadata_publication_lag{{{broker}}}", "0 1x6", 2, 4),
    ]
    try_rules(tmp_path, [alert_case(*one) for one in cases])
    away = f'kafkawire_metadata_errors_total{{{broker},reason="unavailable"}}'
    quiet = alert_case("KafkawireMetadataUnusable", away, "0+5x9", 5, 8)
    quiet["promql_expr_test"] = [{**one, "exp_samples": []} for one in quiet["promql_expr_test"]]  # type: ignore[attr-defined]
    try_rules(tmp_path, [quiet])


def alert_case(
    alert: str, series: str, values: str, silent_minute: int, told_minute: int, beside: Mapping[str, str] | None = None
) -> dict[str, object]:
    """A case for promtool: an alert is silent at one minute and fires at another. `beside`: other series of the
    case."""
    given = {series: values, **(beside or {})}
    tests = [(silent_minute, False), (told_minute, True)]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": each} for name, each in given.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if is_told else [],
            }
            for minute, is_told in tests
        ],
    }


def try_rules(directory: Path, tests: list[dict[str, object]]) -> None:
    document = {"rule_files": [str(DOCKER / "alerts.yaml")], "evaluation_interval": "1m"}
    file = directory / "tests.yaml"
    file.write_text(json.dumps({**document, "tests": tests}))
    assert "SUCCESS" in run([str(need_promtool()), "test", "rules", str(file)])


def test_lag_and_alert_queries_combine_the_series_of_several_brokers(tmp_path: Path) -> None:
    """The coordinator of a group and the leaders of its partitions are different brokers: their series are combined,
    and series that all brokers have are counted once."""
    panels = {panel["title"]: panel["targets"][0]["expr"] for panel in dashboard()}
    offline = "kafka_controller_kafkacontroller_offlinepartitionscount"
    series = {
        'kafka_consumergroup_current_offset{instance="a",consumergroup="g",topic="t",partition="0"}': 40,
        'kafka_consumergroup_current_offset{instance="a",consumergroup="g",topic="t",partition="1"}': 2_000_000,
        'kafka_consumergroup_current_offset{instance="a",consumergroup="up",topic="t",partition="0"}': 101,
        'kafka_topic_partition_current_offset{instance="b",topic="t",partition="0"}': 100,
        'kafka_topic_partition_current_offset{instance="c",topic="t",partition="1"}': 4_000_000,
        'kafka_topic_partition_current_offset{instance="c",topic="t",partition="2"}': 7,
        f'{offline}{{instance="a",job="kafkawire"}}': 5,
        f'{offline}{{instance="b",job="kafkawire"}}': 5,
    }

    def told(alert: str) -> str:
        return f'ALERTS{{alertname="{alert}",alertstate="firing"}}'

    lags = [{"labels": '{consumergroup="g"}', "value": 2_000_060}, {"labels": '{consumergroup="up"}', "value": 0}]
    expected: dict[str, list[dict[str, object]]] = {
        panels["Lag of groups"]: [*lags],
        f"count by (consumergroup) ({told('KafkawireGroupLags')})": [{**lags[0], "value": 1}],
        f"count({told('KafkawirePartitionsOffline')})": [{"labels": "{}", "value": 1}],
    }
    test: dict[str, object] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x20"} for name, value in series.items()],
        "promql_expr_test": [
            {"expr": asked, "eval_time": "15m", "exp_samples": samples} for asked, samples in expected.items()
        ],
    }
    try_rules(tmp_path, [test])


def dashboard() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((DOCKER / "grafana-dashboard.json").read_text())["panels"]
    return panels


def test_the_dashboard(tmp_path: Path) -> None:
    """The queries of the panels are given to Prometheus' checker as rules, because it reads nothing else."""
    panels = dashboard()
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) >= len(panels) > 5
    rules = [{"record": f"asked_{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"SUCCESS: {len(asked)} rules found" in run([str(need_promtool()), "check", "rules", str(file)])


def test_every_metric_that_is_looked_at_is_documented() -> None:
    looked_at = {
        re.sub(r"_bucket$", "", name)
        for file in ("alerts.yaml", "grafana-dashboard.json")
        for name in METRIC.findall((DOCKER / file).read_text())
    }
    assert len(looked_at) > 10
    assert looked_at - set(documented_metrics()) == set()


def documented_metrics() -> Iterator[str]:
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        before = ""
        for goes_on, name in NAMED.findall(line):
            if goes_on:
                yield from (before[: place.start()] + name for place in re.finditer("_", before))
            else:
                before = name
                yield name
