"""Stock clients over TLS: records both ways, certificates of clients, and the errors that clients show."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import time
import warnings
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from compat_tests.clients.java.commands import TOOLS
from compat_tests.harness.kafkawire_broker import KAFKAWIRE
from compat_tests.harness.requirements import need_command
from compat_tests.harness.secured import HOST, Secured
from compat_tests.harness.sources import built, kafkajs_program
from compat_tests.harness.tools import java_tool, kcat, run
from compat_tests.harness.versions import client as client_of
from testkit.certificates import Authority, past

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDS = [f"record {number}".encode() for number in range(2000)]
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("tls"), "required")
    with found.broker:
        yield found


@pytest.fixture(scope="module")
def anonymous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that asks for no certificate."""
    found = Secured(tmp_path_factory.mktemp("tls"))
    with found.broker:
        yield found


def librdkafka(secured: Secured, topic: str) -> list[bytes]:
    producer = Producer(secured.librdkafka(shows_certificate=True))
    for one in RECORDS:
        producer.produce(topic, one)
    assert producer.flush(WITHIN_S) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(secured.librdkafka(shows_certificate=True) | settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < len(RECORDS) and time.monotonic() < deadline:
        found += [one.value() for one in consumer.consume(1000, 1.0)]
    consumer.close()
    return found


def kafka_python(secured: Secured, topic: str) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.ca),
        "ssl_certfile": str(secured.client_chain),
        "ssl_keyfile": str(secured.client_key),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kafka-python reads its schemas in a deprecated way
        import kafka
    producer = kafka.KafkaProducer(**settings)
    for one in RECORDS:
        producer.send(topic, one)
    producer.flush(WITHIN_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=WITHIN_S * 1000, group_id=topic, **settings
    )
    found = [one.value for _, one in zip(RECORDS, consumer, strict=False)]
    consumer.close()
    return found


def with_aiokafka(secured: Secured, topic: str) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": secured.context(),
    }

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for one in RECORDS:
                await producer.send(topic, one)
            await producer.flush()
        found: list[bytes] = []
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            while len(found) < len(RECORDS):
                batches = await consumer.getmany(timeout_ms=1000)
                found += [one.value for batch in batches.values() for one in batch]
        return found

    return asyncio.run(asyncio.wait_for(run(), 2 * WITHIN_S))


def java(secured: Secured, topic: str) -> list[bytes]:
    config = str(secured.java_config(shows_certificate=True))
    common = ["--bootstrap-server", secured.bootstrap, "--topic", topic, "--command-config", config]
    lines = b"\n".join(RECORDS).decode() + "\n"
    java_tool(f"{TOOLS}.ConsoleProducer", *common, stdin=lines)
    count = ["--max-messages", str(len(RECORDS)), "--timeout-ms", str(int(WITHIN_S * 1000)), "--from-beginning"]
    return java_tool(f"{TOOLS}.consumer.ConsoleConsumer", *common, *count).encode().splitlines()


def commands(secured: Secured, topic: str) -> list[bytes]:
    """The command line of kafkawire."""
    config = str(secured.java_config(shows_certificate=True))
    options = ["-b", secured.bootstrap, "--command-config", config]
    lines = b"\n".join(RECORDS).decode() + "\n"
    run([str(KAFKAWIRE), "topics", "create", topic, *options])
    run([str(KAFKAWIRE), "produce", topic, *options], stdin=lines)
    return run([str(KAFKAWIRE), "consume", topic, *options, "--from-beginning", "-e"]).encode().splitlines()


def with_kcat(secured: Secured, topic: str) -> list[bytes]:
    settings = secured.librdkafka(shows_certificate=True)
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
    kcat(secured.bootstrap, *options, "-P", "-t", topic, stdin=b"\n".join(RECORDS).decode())
    return kcat(secured.bootstrap, *options, "-C", "-t", topic, "-e", "-q").encode().splitlines()


@pytest.mark.parametrize(
    "client", [librdkafka, kafka_python, with_aiokafka, java, with_kcat, commands], ids=lambda one: one.__name__
)
def test_records_both_ways(secured: Secured, client: Callable[[Secured, str], list[bytes]]) -> None:
    assert client(secured, f"of-{client.__name__}") == RECORDS


def franz_go() -> list[str]:
    go = need_command("go", "install Go 1.23.8 or newer")
    return [str(built("go", client_of("franz-go"), "newest", [go, "build", "-o", "exercise", "."]) / "exercise")]


def sarama() -> list[str]:
    go = need_command("go", "install Go 1.23.8 or newer")
    return [str(built("sarama", client_of("sarama"), "newest", [go, "build", "-o", "exercise", "."]) / "exercise")]


def kafkajs() -> list[str]:
    return kafkajs_program("exercise.js", "newest")


@pytest.mark.parametrize("client", [franz_go, sarama, kafkajs], ids=lambda one: one.__name__)
def test_exercises_in_other_languages(secured: Secured, client: Callable[[], list[str]]) -> None:
    """The exercise of the client, over TLS and with a certificate."""
    files = [str(one) for one in (secured.ca, secured.client_chain, secured.client_key)]
    command = [*client(), secured.bootstrap, f"exercise-of-{client.__name__}", *files]
    assert run(command, timeout_s=120) == "done\n"


def test_large_records_from_a_file(anonymous: Secured) -> None:
    """Fetch sends ranges of files: they are encrypted in pieces, behind the header in memory."""
    values = [os.urandom(900_000) for _ in range(12)]
    producer = Producer(anonymous.librdkafka() | {"message.max.bytes": 2_000_000})
    for one in values:
        producer.produce("large", one)
    assert producer.flush(WITHIN_S) == 0
    settings = {"group.id": "large", "auto.offset.reset": "earliest", "fetch.max.bytes": 5_000_000}
    consumer = Consumer(anonymous.librdkafka() | settings)
    consumer.subscribe(["large"])
    found: list[bytes] = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < len(values) and time.monotonic() < deadline:
        found += [one.value() for one in consumer.consume(1, 1.0)]
    consumer.close()
    assert found == values


# What a client shows, and what the log of the broker says


def shown_by_librdkafka(settings: dict[str, Any]) -> str:
    shown: list[str] = []
    admin = AdminClient(settings | {"error_cb": lambda error: shown.append(error.str()), "reconnect.backoff.ms": 1000})
    with pytest.raises(Exception, match="Failed to get metadata"):
        admin.list_topics(timeout=3)
    admin.poll(0.5)
    return " ".join(shown)


def log_of(secured: Secured) -> str:
    return secured.broker.log_path.read_text()


def test_a_client_without_a_certificate(secured: Secured) -> None:
    shown = shown_by_librdkafka(secured.librdkafka())
    assert "certificate required" in shown
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in log_of(secured)


def test_a_client_with_an_expired_certificate(secured: Secured) -> None:
    expired = secured.authority.issue("client@example.org", expires=past())
    chain = b"".join(one.bytes() for one in expired.cert_chain_pems)
    settings = secured.librdkafka() | {
        "ssl.key.location": str(secured.authority.write("expired.key", expired.private_key_pem.bytes())),
        "ssl.certificate.location": str(secured.authority.write("expired.crt", chain)),
    }
    assert "certificate expired" in shown_by_librdkafka(settings)
    assert "CERTIFICATE_VERIFY_FAILED" in log_of(secured)


def test_a_client_of_another_authority(anonymous: Secured, tmp_path: Path) -> None:
    foreign = str(Authority(tmp_path).trust_file())
    shown = shown_by_librdkafka(anonymous.librdkafka() | {"ssl.ca.location": foreign})
    assert "certificate verify failed" in shown
    assert "TLSV1_ALERT_UNKNOWN_CA" in log_of(anonymous)


def test_a_wrong_host_name(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    secured.authority.key_file(secured.authority.issue("elsewhere.test"))
    with secured.broker:
        assert "certificate verify failed" in shown_by_librdkafka(secured.librdkafka())


def test_java_shows_kafkas_error(secured: Secured) -> None:
    config = str(secured.java_config())
    common = ["--bootstrap-server", secured.bootstrap, "--command-config", config]
    said = java_tool(f"{TOOLS}.TopicCommand", *common, "--list", check=False)
    assert "SSL handshake failed" in said or "SslAuthenticationException" in said


def test_plaintext_clients_and_tls_listeners(anonymous: Secured) -> None:
    settings = {"bootstrap.servers": anonymous.bootstrap, "broker.address.family": "v4"}
    shown_by_librdkafka(settings)
    assert "connection closed: TLS handshake failed" in log_of(anonymous)
    shown_by_librdkafka(anonymous.librdkafka() | {"bootstrap.servers": f"127.0.0.1:{anonymous.broker.port}"})
    assert "the peer speaks TLS" in log_of(anonymous)


def test_a_new_certificate_at_sighup(anonymous: Secured) -> None:
    before = shown_expiry(anonymous)
    file = anonymous.authority.key_file(anonymous.authority.issue(HOST, "127.0.0.1"))
    file.touch()
    os.kill(anonymous.broker.pid, signal.SIGHUP)
    deadline = time.monotonic() + WITHIN_S
    while shown_expiry(anonymous) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "certificate reloaded" in log_of(anonymous)


def shown_expiry(secured: Secured) -> str:
    """The serial number of the certificate that a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", secured.port))


def test_the_metrics_of_a_certificate(anonymous: Secured) -> None:
    with urlopen(f"{anonymous.broker.http_url}/metrics", timeout=WITHIN_S) as answer:
        text = answer.read().decode()
    assert 'kafkawire_tls_certificate_expiry_seconds{listener="SSL"}' in text
