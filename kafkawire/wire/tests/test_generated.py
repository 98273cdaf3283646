"""The committed message classes equal the output of the generator."""

from pathlib import Path

import pytest

import kafkawire.messages
from tools.generate_messages import generate
from tools.kafka_schemas import clients_jar


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    jar = clients_jar()
    if jar is None:
        pytest.skip("needs Apache Kafka's schemas: make schema-jar")
    generate(tmp_path, jar)
    committed = Path(kafkawire.messages.__file__).parent
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.py")}
    assert {path.name: path.read_text(encoding="utf-8") for path in committed.glob("*.py")} == written
