"""What is in docker/: each file is read by the tool that it is meant for, or by that tool's own checker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from compat_tests.harness.kafkawire_broker import KAFKAWIRE, Kafkawire
from compat_tests.harness.requirements import ROOT, need_command, need_promtool
from compat_tests.harness.tools import run
from kafkawire.config.broker_config import load
from kafkawire.config.properties import gather

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCKER = ROOT / "docker"
COPY = re.compile(r"^COPY (?!--from)(.*) \S+$", re.MULTILINE)
METRIC = re.compile(r"\b(?:kafka|kafkawire|redpanda)_\w+")
NAMED = re.compile(r"`(…?)(\w+)`")  # `…_total` goes on where the name before it has an underscore


def test_the_image() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    assert run([str(hadolint), str(DOCKER / "Dockerfile")]) == ""


def test_the_image_is_given_what_it_copies() -> None:
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


def test_the_compose_file() -> None:
    compose = need_command("docker-compose", "make system-deps")
    understood = run([compose, "--file", str(DOCKER / "compose.yaml"), "config"])
    assert "127.0.0.1:9092:9092/tcp" in understood
    assert f"context: {ROOT}\n" in understood


def test_the_compose_file_with_a_tier() -> None:
    compose = need_command("docker-compose", "make system-deps")
    files = [part for name in ("compose.yaml", "compose.tier.yaml") for part in ("--file", str(DOCKER / name))]
    understood = run([compose, *files, "config"])
    said = dict(re.findall(r'^ +(\w+): "?(.*?)"?$', understood, re.MULTILINE))
    config, _ = load(gather(None, {name: value for name, value in said.items() if "KAFKA_" in name}, ()).values)
    assert str(config.tier_store) == "s3://kafka/lake"
    assert config.tier_s3_endpoint == "http://s3:7070"
    assert "- :7070\n" in understood
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
    """Each with what it is for, as a broker shows it a minute after the other, and just before it is told."""
    broker = 'instance="a",job="kafkawire"'
    cases = [
        ("KafkawireTierStoreAway", f"kafkawire_tier_store_away_seconds{{{broker}}}", "0 0 30 90 150 210", 3, 5),
        ("KafkawireTierCopyLags", f"kafkawire_tier_copy_oldest_seconds{{{broker}}}", "840+60x10", 6, 7),
        ("KafkawireTierTrouble", f"kafkawire_tier_partitions_troubled{{{broker}}}", "0 1x8", 5, 7),
    ]

    def case(alert: str, series: str, values: str, silent_minute: int, told_minute: int) -> dict[str, object]:
        tests = [(silent_minute, False), (told_minute, True)]
        return {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing",instance="a"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if is_told else [],
                }
                for minute, is_told in tests
            ],
        }

    document = {"rule_files": [str(DOCKER / "alerts.yaml")], "evaluation_interval": "1m"}
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({**document, "tests": [case(*one) for one in cases]}))
    assert "SUCCESS" in run([str(need_promtool()), "test", "rules", str(file)])


def test_the_dashboard(tmp_path: Path) -> None:
    """What its panels ask is given to Prometheus' checker as rules, which is all that it reads."""
    panels = json.loads((DOCKER / "grafana-dashboard.json").read_text())["panels"]
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
