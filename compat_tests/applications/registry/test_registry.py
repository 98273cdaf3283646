"""Apicurio Registry with its schemas in topics: it has all of them after restarts of either side."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients.confluent.clients import Admin, wait_until
from compat_tests.harness.broker import free_port
from compat_tests.harness.requirements import need_registry_jars
from compat_tests.harness.rest import RefusedError, RestService
from compat_tests.harness.target import target_broker
from compat_tests.harness.tools import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

START_TIMEOUT_S = 90.0
CONFLICT = 409
CONFLUENT = "/apis/ccompat/v7"  # the API of clients of Confluent's registry
SUBJECT = "orders-value"
TOPICS = {"kafkasql-journal", "kafkasql-snapshots", "registry-events"}
NUMBER = {"name": "number", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
OTHER = {"name": "other", "type": "string"}  # a reader of this one cannot read the others


def schema(*fields: dict[str, str]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


class Registry(RestService):
    """The registry with the API of its clients."""

    def is_ready(self) -> bool:
        return self.answers("/health/ready") and self.answers(f"{CONFLUENT}/subjects")

    def register(self, text: str) -> int:
        answer = self.call(f"{CONFLUENT}/subjects/{SUBJECT}/versions", {"schema": text})
        number: int = answer["id"]
        return number

    def schema_of(self, number: int) -> Any:
        return json.loads(self.call(f"{CONFLUENT}/schemas/ids/{number}")["schema"])

    def versions(self) -> list[int]:
        found: list[int] = self.call(f"{CONFLUENT}/subjects/{SUBJECT}/versions")
        return found

    def demand_compatibility(self) -> None:
        self.call(f"{CONFLUENT}/config/{SUBJECT}", {"compatibility": "BACKWARD"}, "PUT")

    def take_snapshot(self) -> None:
        """Take a snapshot of all schemas, into a file that a topic names: the next start begins there."""
        self.call("/apis/registry/v3/admin/snapshots", method="POST")


@contextmanager
def registry(broker: Broker, directory: Path) -> Iterator[Registry]:
    """A registry that creates its three topics itself; the state in its memory is lost at the end."""
    port = free_port()
    directory.mkdir(exist_ok=True)
    settings = {
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": broker.bootstrap,
        "apicurio.storage.snapshot.location": str(directory),
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    [program] = need_registry_jars().glob("*-runner.jar")
    command = ["java", "-Xmx512m", *options, "-jar", str(program)]
    with running(directory / "registry.log", command) as process:
        service = Registry(port)
        wait_until(
            lambda: process.poll() is not None or service.is_ready(), "the registry is not ready", START_TIMEOUT_S
        )
        assert process.poll() is None, "the registry is gone"
        yield service


def test_schemas_survive_the_registry_and_the_broker(tmp_path: Path) -> None:
    need_registry_jars()
    with target_broker(tmp_path / "broker") as broker:
        with registry(broker, tmp_path / "registry") as running_registry:
            assert set(Admin(broker).topics()) >= TOPICS
            first = running_registry.register(schema(NUMBER))
            assert running_registry.register(schema(NUMBER)) == first
            running_registry.demand_compatibility()
            with pytest.raises(RefusedError) as refusal:
                running_registry.register(schema(OTHER))
            assert refusal.value.status == CONFLICT
            running_registry.take_snapshot()
            broker.kill()
            broker.start()
            second = running_registry.register(schema(NUMBER, NOTE))
        broker.stop()
        broker.start()
        with registry(broker, tmp_path / "registry") as running_registry:
            assert running_registry.versions() == [1, 2]
            assert running_registry.schema_of(first) == json.loads(schema(NUMBER))
            assert running_registry.schema_of(second) == json.loads(schema(NUMBER, NOTE))
            with pytest.raises(RefusedError):
                running_registry.register(schema(OTHER))
