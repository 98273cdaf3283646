"""docs/compatibility.md is made of recorded runs, in the versions of the table, which are those that are installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.harness.versions import COMPAT_TESTS, Client, client, clients
from compat_tests.report import outcomes
from tools.generate_compatibility_doc import FINDINGS, TARGET, render, results

ROOT = TARGET.parent.parent
APACHE_KAFKA = ("kafka-tools", "kafka-streams")
FINDING = re.compile(r"^\d+\. .*(?:\n .*)*", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
JUNIT = """<testsuites><testsuite>
<testcase classname="compat_tests.features.groups.test_a" name="test_one[java-range]"/>
<testcase classname="compat_tests.features.groups.test_a" name="test_one[aiokafka]"/>
<testcase classname="compat_tests.clients.java.test_b" name="test_two[oldest]"><failure message="no"/></testcase>
<testcase classname="compat_tests.clients.java.test_b" name="test_three"><skipped message="needs java"/></testcase>
</testsuite></testsuites>"""
API = re.compile(r"docs/protocol\.md: (\w+)")


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_file_is_current() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run `make generate`"


@pytest.mark.parametrize("each", clients(), ids=lambda each: each.name)
def test_recorded_results_have_the_client_versions_of_the_table(each: Client) -> None:
    recorded = results()[each.name]
    assert (recorded["newest"], recorded.get("oldest")) == (each.newest, each.oldest), (
        f"python -m compat_tests.report {each.name}; make generate"
    )


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_python_clients_are_pinned_so(name: str) -> None:
    assert f"\n{name}=={client(name).newest} " in f"\n{text('requirements/test.txt')}"
    assert f"\n{name}=={client(name).oldest} " in f"\n{text('requirements/oldest-clients.txt')}"


def in_pom(path: str, artifact: str) -> str:
    found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([^<]*)</version>", text(path))
    assert found, f"{path} has no {artifact}"
    return found.group(1)


def test_java_clients_are_pinned_so() -> None:
    for name in APACHE_KAFKA:
        assert in_pom("tools/jars/kafka.xml", name) == client(name).newest
    assert in_pom("tools/jars/kafka.xml", "kafka_2.13") == client("kafka-clients").newest
    assert in_pom("tools/jars/connect.xml", "connect-file") == client("connect-runtime").newest
    assert in_pom("tools/jars/connect.xml", "connect-mirror") == client("connect-mirror").newest
    assert in_pom("tools/jars/oldest-kafka.xml", "kafka-clients") == client("kafka-clients").oldest
    assert in_pom("tools/jars/registry.xml", "apicurio-registry-app") == client("apicurio-registry").newest
    assert in_pom("tools/jars/spark.xml", "spark-sql-kafka-0-10_2.13") == client("spark-sql-kafka").newest
    assert in_pom("tools/jars/spring.xml", "spring-boot-dependencies") == client("spring-boot").newest
    assert in_pom("tools/jars/flink.xml", "flink-connector-kafka") == client("flink").newest
    assert in_pom("tools/jars/camel.xml", "camel-kafka") == client("camel").newest
    assert f"<quarkus.version>{client('quarkus').newest}<" in text("compat_tests/applications/quarkus/pom.xml")


def test_the_others_are_pinned_so() -> None:
    assert f"franz-go v{client('franz-go').newest}\n" in text("compat_tests/clients/go/go.mod")
    assert f"franz-go v{client('franz-go').oldest}\n" in text("compat_tests/clients/go/oldest.mod")
    assert f"sarama v{client('sarama').newest}\n" in text("compat_tests/clients/sarama/go.mod")
    assert f"sarama v{client('sarama').oldest}\n" in text("compat_tests/clients/sarama/oldest.mod")
    manifest = text("compat_tests/clients/sarama/without-max-timestamp.mod")
    assert f"sarama v{client('sarama-1.45').newest}\n" in manifest
    assert f"kafka-go v{client('kafka-go').newest}\n" in text("compat_tests/clients/kafka_go/go.mod")
    assert f'"kafkajs": "{client("kafkajs").newest}"' in text("compat_tests/clients/node/package.json")
    assert f'rskafka = {{ version = "={client("rskafka").newest}"' in text("compat_tests/clients/rust/Cargo.toml")
    newest = client("platformatic-kafka").newest
    assert f'"@platformatic/kafka": "{newest}"' in text("compat_tests/clients/platformatic/package.json")
    assert f"kaskade=={client('kaskade').newest}\n" in text("requirements/kaskade.in")
    assert f"quixstreams=={client('quixstreams').newest}\n" in text("requirements/quix.in")


def test_every_file_of_a_client_is_there() -> None:
    for each in clients():
        for test in each.tests:
            assert (COMPAT_TESTS / test.partition(":")[0]).exists(), test


def test_every_finding_cites_a_test_or_an_api_that_is_not_served() -> None:
    findings = FINDING.findall(FINDINGS.read_text(encoding="utf-8"))
    assert findings
    later = text("docs/protocol.md").partition("## Not served yet")[2]
    for finding in findings:
        tests, apis = TEST.findall(finding), API.findall(finding)
        assert tests or apis, finding
        for file, name in tests:
            assert f"\ndef {name}(" in (Path(COMPAT_TESTS) / file).read_text(encoding="utf-8"), name
        for api in apis:
            assert f"| {api} |" in later, api


def test_results_are_counted_by_client_and_by_oldest_and_newest_version(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(JUNIT)
    assert outcomes(report, "java") == {"features/groups/test_a.py": {"newest": {"passed": 1}}}
    everything = outcomes(report, "")
    assert everything["features/groups/test_a.py"] == {"newest": {"passed": 2}}
    assert everything["clients/java/test_b.py"] == {"oldest": {"failed": 1}, "newest": {"skipped": 1}}
