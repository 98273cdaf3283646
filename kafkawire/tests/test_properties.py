"""Where the configuration comes from: files, the environment, the command line, and which of them counts."""

from pathlib import Path

import pytest

from kafkawire.config import ConfigError, load
from kafkawire.properties import from_environment, gather, parse


def read(content: str) -> dict[str, str]:
    return {key: value for key, value, _ in parse(content, "file")}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a=1\nb = 2 ", {"a": "1", "b": "2"}),
        ("a: 1", {"a": "1"}),
        ("# no\n! no\n\na=b=c", {"a": "b=c"}),
        ("a=1,\\\n2", {"a": "1,2"}),
        ("a=1,\\\n  2", {"a": "1,2"}),
        ("a=1\\", {"a": "1"}),
        ("# kept in C:\\\na=1", {"a": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_properties(content: str, expected: dict[str, str]) -> None:
    assert read(content) == expected


def test_each_property_knows_the_line_it_begins_on() -> None:
    content = "# a comment\na=1,\\\n  2\n\nb=3"
    assert list(parse(content, "file")) == [("a", "1,2", "file, line 2"), ("b", "3", "file, line 5")]


def test_a_line_without_a_value_is_refused_by_its_number() -> None:
    with pytest.raises(ConfigError, match=r"^file, line 2: not a key=value line: log\.dirs$"):
        read("a=1\nlog.dirs")


def test_a_file_that_cannot_be_read_as_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "latin.properties").write_bytes(b"broker.rack=M\xfcnchen")
    with pytest.raises(ConfigError, match=r"latin.properties is not UTF-8: .* at byte 13$"):
        gather(tmp_path / "latin.properties", {}, ())
    with pytest.raises(ConfigError, match="No such file"):
        gather(tmp_path / "none.properties", {}, ())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_IN__SIDE_X", "listener.name.in_side.x"),
        ("KAFKA_A___B", "a-b"),
    ],
)
def test_names_of_the_environment_are_those_of_kafkas_image(name: str, key: str) -> None:
    assert list(from_environment({name: "v"})) == [(key, "v", name)]


@pytest.mark.parametrize("name", ["KAFKA_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKAWIRE_X", "PATH", "kafka_x"])
def test_what_is_no_property_of_the_environment(name: str) -> None:
    assert list(from_environment({name: "v"})) == []


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nbroker.rack=file\nnode.id=1")
    found = gather(file, {"KAFKA_BROKER_RACK": "environment", "KAFKA_NODE_ID": "2"}, ["node.id=3"])
    config, warnings = load(found.values, found.origins)
    assert (config.num_partitions, config.rack, config.node_id, warnings) == (1, "environment", 3, [])


@pytest.mark.parametrize(
    ("content", "environment", "settings", "origin"),
    [
        ("a=1\nnum.partitions=0", {}, [], "FILE, line 2"),
        ("num.partitions=1", {"KAFKA_NUM_PARTITIONS": "0"}, [], "KAFKA_NUM_PARTITIONS"),
        ("", {}, ["num.partitions=0"], "--set"),
    ],
)
def test_a_complaint_names_where_the_value_stands(
    tmp_path: Path, content: str, environment: dict[str, str], settings: list[str], origin: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(content)
    found = gather(file, environment, settings)
    with pytest.raises(ConfigError) as refused:
        load(found.values, found.origins)
    assert str(refused.value).startswith(f"{origin.replace('FILE', str(file))}: num.partitions=0: must be between 1")


def test_a_warning_names_where_the_key_stands() -> None:
    found = gather(None, {"KAFKA_NO_SUCH_KEY": "1"}, ["num.io.threads=8"])
    assert load(found.values, found.origins)[1] == [
        "KAFKA_NO_SUCH_KEY: no.such.key is not a key of this broker",
        "--set: num.io.threads has no effect here: one event loop serves all requests",
    ]
