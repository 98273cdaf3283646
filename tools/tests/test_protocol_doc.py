"""docs/protocol.md agrees with the API table, and leaves no API out."""

from __future__ import annotations

import pytest

from kafkawire.handlers import API_TABLE
from kafkawire.messages import MODULES
from tools.generate_messages import OF_CLIENTS, SERVED
from tools.generate_protocol_doc import COMING, GAPS, KRAFT, TARGET, between, render, title
from tools.kafka_schemas import clients_jar, read_schemas


def test_the_file_is_current() -> None:
    assert TARGET.read_text() == render(), "run `make generate`"


def test_every_api_of_brokers_is_either_served_or_promised() -> None:
    served = {api.key for api in API_TABLE}
    promised = {key for apis in COMING.values() for key in apis}
    assert not served & promised, "what is served does not come any more"
    assert served == SERVED
    assert set(MODULES) == SERVED | OF_CLIENTS
    jar = clients_jar()
    if jar is None:
        pytest.skip("needs Apache Kafka's schemas: make schema-jar")
    schemas = {one.key: one for one in read_schemas(jar) if one.side == "request"}
    of_brokers = {key for key, one in schemas.items() if "broker" in one.listeners}
    assert of_brokers <= served | promised | KRAFT
    for key, (name, versions) in [row for apis in COMING.values() for row in apis.items()]:
        assert (f"{name}Request", versions) == (schemas[key].name, between(*schemas[key].versions))


def test_every_gap_names_an_unfinished_part_of_the_project() -> None:
    """A part of the project without APIs left to build is done, except for the named gaps."""
    coming = {name.partition(" (")[0] for name in COMING} | {
        "transactions",
        "tiering",
        "with the APIs that need them",
        "by intent",
    }
    assert {part for gaps in GAPS.values() for _, brings in gaps for part in brings.split(", ")} <= coming


def test_gaps_are_told_of_served_apis_only() -> None:
    assert set(GAPS) <= {api.name for api in API_TABLE}


def test_names_are_kafkas() -> None:
    assert title("list_offsets") == "ListOffsets"
