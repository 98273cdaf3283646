"""Configuration: what is accepted, what is refused and with which line."""

from pathlib import Path

import pytest

from kafkawire.cli.serve import text_of
from kafkawire.config import Config, ConfigError, Listener, load, read_properties
from kafkawire.unbuilt_config import HARMLESS_KEYS, UNBUILT_KEYS

STOCK_FILE = """
# The Apache Kafka 4.3 server.properties for one node, in part
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092
advertised.listeners=PLAINTEXT://localhost:9092
num.network.threads=3
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
log.retention.hours=168
log.segment.bytes=1073741824
"""


def test_defaults_of_a_first_run() -> None:
    config, warnings = load({})
    assert config == Config()
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.http_listener == ("127.0.0.1", 9644)
    assert not warnings


def test_a_stock_file_is_read_with_named_warnings() -> None:
    config, warnings = load(read_properties(STOCK_FILE))
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised("PLAINTEXT") == Listener("PLAINTEXT", "localhost", 9092)
    assert [line.split()[0] for line in warnings] == [
        "process.roles",
        "controller.quorum.bootstrap.servers",
        "num.network.threads",
    ]


def test_unknown_key_is_a_named_warning() -> None:
    assert load({"no.such.key": "1"})[1] == ["no.such.key is not a key of this broker"]


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("num.partitions", "0", "must be between 1"),
        ("num.partitions", "many", "must be a whole number"),
        ("auto.create.topics.enable", "maybe", "must be true or false"),
        ("listeners", "PLAINTEXT://127.0.0.1", "is not host:port"),
        ("listeners", "127.0.0.1:9092", "is not NAME://host:port"),
        ("listeners", "PLAINTEXT://127.0.0.1:99999", "is not host:port"),
        ("listeners", "A://127.0.0.1:1,A://127.0.0.1:2", "a listener name is used twice"),
        ("listeners", "A://127.0.0.1:1,B://127.0.0.1:1", "an address is used twice"),
        ("listeners", "", "at least one is needed"),
        ("listeners", "SASL_SSL://127.0.0.1:9092", "only PLAINTEXT is supported yet"),
        ("advertised.listeners", "OTHER://host:1", "not among listeners"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "needs an address clients can reach"),
        ("log.dirs", " , ", "names no directory"),
        ("log.dirs", "a,a", "names a directory twice"),
        ("http.listeners", "https://127.0.0.1:1", "must be http://host:port"),
        ("log.message.timestamp.type", "Never", "must be one of CreateTime, LogAppendTime"),
    ],
)
def test_a_bad_value_refuses_to_start_and_names_its_key(key: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({key: value})
    line = str(refused.value)
    assert line.startswith(key)
    assert complaint in line
    assert "\n" not in line


@pytest.mark.parametrize("value", ["1_000", "1 000", "0x10", "\u0661", "1.0", "", "9" * 20])
def test_a_number_is_what_java_reads_as_one(value: str) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        load({"num.partitions": value})


def test_minus_one_is_no_limit_where_kafka_says_so() -> None:
    config, _ = load({"queued.max.request.bytes": "-1", "connections.max.idle.ms": "-1"})
    assert config.queued_max_request_bytes == config.connections_max_idle_ms == 2**63 - 1
    with pytest.raises(ConfigError, match="or -1 for no limit"):
        load({"queued.max.request.bytes": "-2"})


@pytest.mark.parametrize("key", sorted(UNBUILT_KEYS))
def test_a_key_not_built_yet_takes_only_its_default(key: str) -> None:
    assert load({key: UNBUILT_KEYS[key]}) == (Config(), [])
    with pytest.raises(ConfigError, match="not supported yet"):
        load({key: UNBUILT_KEYS[key] + "x"})


@pytest.mark.parametrize("key", ["sasl.enabled.mechanisms", "ssl.keystore.location", "listener.name.x.ssl.y"])
def test_security_that_does_not_exist_refuses_to_start(key: str) -> None:
    with pytest.raises(ConfigError, match="SASL and SSL are not supported yet"):
        load({key: "PLAIN"})


def test_no_key_is_in_two_tables() -> None:
    ours = {key for key in UNBUILT_KEYS | HARMLESS_KEYS if not load_is_unknown(key)}
    assert not ours


def load_is_unknown(key: str) -> bool:
    import dataclasses

    return key not in {field.metadata["key"] for field in dataclasses.fields(Config)}


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
    assert read_properties(content) == expected


def test_a_file_that_cannot_be_read_as_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "latin.properties").write_bytes(b"broker.rack=M\xfcnchen")
    with pytest.raises(ConfigError, match=r"latin.properties is not UTF-8: .* at byte 13$"):
        text_of(tmp_path / "latin.properties")
    with pytest.raises(ConfigError, match="No such file"):
        text_of(tmp_path / "none.properties")


def test_a_line_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a key=value line"):
        read_properties("log.dirs")


def test_a_key_goes_before_its_older_name_wherever_they_stand() -> None:
    config, _ = load(read_properties("log.dirs=/new\nlog.dir=/old"))
    assert config.log_dirs == (Path("/new"),)
