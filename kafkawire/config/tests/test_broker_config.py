"""Configuration: accepted values, refused values, and their error lines."""

from datetime import datetime
from pathlib import Path

import pytest

from engine.log_config import CleanupPolicy
from kafkawire.config.broker_config import BROKER_KEYS, KNOWN_KEYS, Config, ConfigError, Listener, load
from kafkawire.config.effective import COMPACTION, EffectiveConfigs
from kafkawire.config.properties import parse
from kafkawire.config.unbuilt import HARMLESS_KEYS, UNBUILT_KEYS, UNLISTED_KEYS
from testkit.broker_files import COMBINED_FILE

# Files of Apache Kafka 4.3.1, without comments: config/server.properties ...
# ... and config/broker.properties, as far as it differs.
BROKER_FILE = (
    COMBINED_FILE
    + """
process.roles=broker
node.id=2
listeners=PLAINTEXT://localhost:9092
advertised.listeners=PLAINTEXT://localhost:9092
log.dirs=/tmp/kraft-broker-logs
"""
)
WITHOUT_EFFECT = {
    "process.roles",
    "controller.quorum.bootstrap.servers",
    "num.network.threads",
    "num.io.threads",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "num.recovery.threads.per.data.dir",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
}


def properties(content: str) -> dict[str, str]:
    return {key: value for key, value, _ in parse(content, "file")}


def test_defaults_of_a_first_run() -> None:
    config, warnings = load({})
    assert config == Config()
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.http_listener == ("127.0.0.1", 9644)
    assert not warnings


@pytest.mark.enforces("controller.listener.names")
def test_the_file_of_a_combined_node_starts_a_broker_without_its_controller() -> None:
    config, warnings = load(properties(COMBINED_FILE))
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    *harmless, controller = warnings
    assert {line.split()[0] for line in harmless} == WITHOUT_EFFECT
    assert controller == "listener CONTROLLER://:9093 is not opened: this broker needs no KRaft quorum"


def test_the_file_of_a_broker_starts_one() -> None:
    config, warnings = load(properties(BROKER_FILE))
    assert (config.node_id, config.listeners) == (2, (Listener("PLAINTEXT", "localhost", 9092),))
    assert {line.split()[0] for line in warnings} == WITHOUT_EFFECT


@pytest.mark.enforces("listener.security.protocol.map")
@pytest.mark.parametrize(
    ("protocols", "listeners", "complaint"),
    [
        ("OUTSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT", "PLAINTEXT://h:1", None),
        ("OUTSIDE:PLAINTEXT", "OUTSIDE://h:1", None),
        ("SSL:PLAINTEXT", "SSL://h:1", None),
        ("OUTSIDE:SSL", "OUTSIDE://h:1", None),
        ("OUTSIDE:SASL_SSL", "OUTSIDE://h:1", "listeners: OUTSIDE asks for SASL_SSL, which is not supported yet"),
        ("PLAINTEXT:PLAINTEXT", "INSIDE://h:1", "listeners: INSIDE is not in listener.security.protocol.map"),
        ("PLAINTEXT", "PLAINTEXT://h:1", "PLAINTEXT is not NAME:PROTOCOL with one of SASL_SSL, PLAINTEXT"),
    ],
)
def test_only_an_opened_listener_needs_a_supported_protocol(
    protocols: str, listeners: str, complaint: str | None
) -> None:
    given = {"listener.security.protocol.map": protocols, "listeners": listeners}
    if complaint is None:
        assert len(load(given)[0].listeners) == 1
    else:
        with pytest.raises(ConfigError, match=complaint):
            load(given)


def test_a_node_that_is_a_controller_alone_does_not_start() -> None:
    with pytest.raises(ConfigError, match="listeners: at least one is needed"):
        load({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"})


def test_unknown_key_is_a_named_warning() -> None:
    assert load({"no.such.key": "1"})[1] == ["no.such.key is not a key of this broker"]
    assert load({"": "1"})[1] == ["'' is not a key of this broker"]


def test_config_messages_are_one_line_for_any_key_or_value() -> None:
    assert load({"a\nb\x1b": "1"})[1] == [r"a\nb\x1b is not a key of this broker"]
    with pytest.raises(ConfigError, match=r"^num\.partitions=1\\n2: must be a whole number$"):
        load({"num.partitions": "1\n2"})


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
        ("listeners", "PLAINTEXT://SSL://h:1", "SSL://h:1 is not host:port"),
        ("listeners", "PLAINTEXT://my host:1", "my host:1 is not host:port"),
        ("listeners", "SASL_SSL://127.0.0.1:9092", "asks for SASL_SSL, which is not supported yet"),
        ("advertised.listeners", "OTHER://host:1", "not among listeners"),
        ("advertised.listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "a listener name is used twice"),
        ("advertised.listeners", "PLAINTEXT://h/:1", "h/:1 is not host:port"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "needs an address clients can reach"),
        ("log.dirs", " , ", "names no directory"),
        ("log.dirs", "a,a", "names a directory twice"),
        ("log.dirs", "a\0b", "no name of a file holds a zero byte"),
        ("metadata.log.dir", "a\0b", "no name of a file holds a zero byte"),
        ("http.listeners", "https://127.0.0.1:1", "must be http://host:port"),
        ("http.listeners", "http://127.0.0.1:1,http://127.0.0.1:2", "must be one address, http://host:port"),
        ("http.listeners", "http://127.0.0.1/metrics:1", "127.0.0.1/metrics:1 is not host:port"),
        ("http.allowed.hosts", "a, b:9644", "b:9644 is not the name of a host, without a port, nor *"),
        ("http.allowed.hosts", "*.example", "*.example is not the name of a host, without a port, nor *"),
        ("log.message.timestamp.type", "Never", "must be one of CreateTime, LogAppendTime"),
        ("disk.reject.ratio", "0", "must be above 0 and at most 1"),
        ("disk.reject.ratio", "half", "must be a number"),
        ("disk.reject.ratio", "\u0660.\u0665", "must be a number"),
        ("log.cleaner.io.buffer.load.factor", "0_1", "must be a number"),
        ("log.cleaner.io.max.bytes.per.second", "1_000", "must be a number"),
        ("log.cleanup.window", "0\u0662:00-04:00", "must be HH:MM-HH:MM"),
        ("log.cleaner.threads", "1001", "must be between 0 and 1000"),
        ("log.cleaner.dedupe.buffer.size", "-1", "must be between 1048577 and"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "must be between 1048577 and"),
        ("log.cleaner.io.buffer.load.factor", "-0.5", "must be above 0 and at most 1"),
        ("log.cleaner.io.buffer.load.factor", "NaN", "must be above 0 and at most 1"),
        ("log.cleaner.io.max.bytes.per.second", "0", "must be above 0 and finite"),
        ("log.cleaner.io.max.bytes.per.second", "-1.5", "must be above 0 and finite"),
        ("log.cleaner.io.max.bytes.per.second", "NaN", "must be above 0 and finite"),
        ("log.cleaner.io.max.bytes.per.second", "Infinity", "must be above 0 and finite"),
        ("log.cleaner.io.max.bytes.per.second", "1e400", "must be above 0 and finite"),
        ("group.min.session.timeout.ms", "1800001", "is greater than group.max.session.timeout.ms"),
        ("log.roll.ms", "0", "must be between 1"),
    ],
)
def test_a_bad_value_refuses_the_start_and_names_its_key(key: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({key: value})
    line = str(refused.value)
    assert line.startswith(key)
    assert refused.value.key == key
    assert complaint in line
    assert "\n" not in line


def test_many_listeners_may_be_advertised_at_one_address_as_in_kafka() -> None:
    """requireDistinctPorts is false for advertised.listeners: a proxy may tell them apart by other means."""
    config, _ = load({"listeners": "A://h:1,B://h:2", "advertised.listeners": "A://x:5,B://x:5"})
    assert config.advertised_listeners == (Listener("A", "x", 5), Listener("B", "x", 5))


@pytest.mark.parametrize(
    ("address", "host"),
    [("[::1]:1", "::1"), ("my_host-1.x:1", "my_host-1.x"), ("[fe80::1%eth0]:1", "fe80::1%eth0"), (":1", "")],
)
def test_hosts_that_kafka_accepts_are_accepted(address: str, host: str) -> None:
    config, _ = load({"listeners": f"A://{address}", "http.listeners": f"http://{address}"})
    assert config.listeners == (Listener("A", host, 1),)
    assert config.http_listener == (host, 1)


@pytest.mark.parametrize("value", ["1_000", "1 000", "0x10", "\u0661", "1.0", "", "9" * 20])
def test_a_value_that_is_no_decimal_integer_or_too_long_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        load({"num.partitions": value})


def test_minus_one_is_no_limit_where_kafka_says_so() -> None:
    config, _ = load({"queued.max.request.bytes": "-1", "connections.max.idle.ms": "-1"})
    assert config.queued_max_request_bytes == config.connections_max_idle_ms == 2**63 - 1
    with pytest.raises(ConfigError, match="or -1 for no limit"):
        load({"queued.max.request.bytes": "-2"})


@pytest.mark.parametrize("key", sorted(name for name, key in KNOWN_KEYS.items() if not key.is_built))
def test_a_key_not_built_yet_takes_only_its_default(key: str) -> None:
    default = KNOWN_KEYS[key].default
    if default is not None:
        assert load({key: default}) == (Config(), [])
    with pytest.raises(ConfigError, match=f"^{key}.*: not supported yet"):
        load({key: f"{default}x"})


@pytest.mark.parametrize(
    ("value", "shown"),
    [("1e9", "1.0E9"), ("10", "10.0"), ("1e400", "Infinity"), ("-inf", "-Infinity"), ("nan", "NaN")],
)
def test_a_number_is_shown_as_java_shows_it(value: str, shown: str) -> None:
    assert BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].shown(value) == shown


def test_a_default_may_be_written_differently() -> None:
    assert load({"log.cleaner.min.cleanable.ratio": "0.50", "log.cleaner.enable": "TRUE"}) == (Config(), [])


def test_security_that_does_not_exist_refuses_to_start() -> None:
    with pytest.raises(ConfigError, match="SASL is not supported yet"):
        load({"sasl.enabled.mechanisms": "PLAIN"})


PROMISES = {
    "super.users": "User:root",
    "allow.everyone.if.no.acl.found": "true",
    "principal.builder.class": "org.example.Builder",
    "connections.max.reauth.ms": "3600000",
    "connection.failed.authentication.delay.ms": "1000",
    "delegation.token.secret.key": "hunter2",
    "delegation.token.master.key": "hunter2",
    "delegation.token.expiry.time.ms": "1000",
    "security.providers": "org.example.Provider",
    "config.providers": "file",
    "config.providers.file.class": "org.example.FileConfigProvider",
    "password.encoder.secret": "hunter2",
    "create.topic.policy.class.name": "org.example.Policy",
    "alter.config.policy.class.name": "org.example.Policy",
    "client.quota.callback.class": "org.example.Quotas",
    "client.quota.callback.static.produce": "1000",
    "quota.window.num": "5",
    "quota.producer.default": "1048576",
    "controller.quota.window.size.seconds": "5",
    "alter.log.dirs.replication.quota.window.num": "5",
    "replica.alter.log.dirs.io.max.bytes.per.second": "1048576",
    "max.connection.creation.rate": "10",
    "max.connections.per.ip.overrides": "10.0.0.1:5",
    "cordoned.log.dirs": "data",
}


@pytest.mark.parametrize("key", PROMISES)
def test_an_unsupported_key_of_security_or_limits_refuses_the_start(key: str) -> None:
    with pytest.raises(ConfigError, match=r"not supported") as refused:
        load({key: PROMISES[key]})
    assert str(refused.value).startswith(key)
    assert refused.value.key == key
    assert "hunter2" not in str(refused.value)


def test_no_key_is_in_two_tables() -> None:
    assert not BROKER_KEYS.keys() & HARMLESS_KEYS.keys()
    assert not UNLISTED_KEYS.keys() & (BROKER_KEYS.keys() | HARMLESS_KEYS.keys())
    assert all(BROKER_KEYS[name] is key for name, key in UNBUILT_KEYS.items())


@pytest.mark.parametrize("name", BROKER_KEYS)
def test_every_key_accepts_its_default_and_has_documentation(name: str) -> None:
    key = BROKER_KEYS[name]
    assert key.documentation.endswith(".")
    if key.default is not None:
        assert load({name: key.default})[0] == Config()
        assert key.shown(key.default) == key.default, "as Kafka shows it"


def test_a_key_precedes_its_older_name_even_if_it_stands_first() -> None:
    config, _ = load(properties("log.dirs=/new\nlog.dir=/old"))
    assert config.log_dirs == (Path("/new"),)


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.ms": "1", "log.retention.minutes": "2", "log.retention.hours": "3"}, 1),
        ({"log.retention.minutes": "2", "log.retention.hours": "3"}, 120_000),
        ({"log.retention.ms": "-1", "log.retention.hours": "3"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_in_milliseconds_goes_before_minutes_before_hours(given: dict[str, str], expected_ms: int) -> None:
    assert EffectiveConfigs(load(given)[0]).log_defaults.retention_ms == expected_ms


def test_no_retention_at_all_is_no_retention() -> None:
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        with pytest.raises(ConfigError, match=rf"{key}=0: must be unlimited \(-1\) or, equal or greater than 1"):
            load({key: "0"})


def at(time: str) -> int:
    return round(datetime.fromisoformat(f"2026-11-21T{time}").timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "within", "without"),
    [
        ("04:00-05:00", ["04:00:00", "04:59:59"], ["03:59:59", "05:00:00", "16:30:00"]),
        ("22:30-01:00", ["22:30:00", "23:59:59", "00:59:59"], ["22:29:59", "01:00:00", "12:00:00"]),
        ("00:00-00:01", ["00:00:59"], ["00:01:00", "23:59:59"]),
    ],
)
def test_a_window_of_each_day(window: str, within: list[str], without: list[str]) -> None:
    found = load({"log.cleanup.window": window})[0].cleanup_window
    assert found is not None
    assert all(found.holds_at(at(time)) for time in within)
    assert not any(found.holds_at(at(time)) for time in without)


@pytest.mark.parametrize("value", ["04:00", "4:00-5:00", "24:00-01:00", "04:60-05:00", "04:00-04:00", "always"])
def test_a_window_that_is_none(value: str) -> None:
    with pytest.raises(ConfigError, match=f"log.cleanup.window={value}: "):
        load({"log.cleanup.window": value})


def test_retention_leaves_internal_topics_alone() -> None:
    configs = EffectiveConfigs(Config())
    assert configs.log_config("__consumer_offsets", dict([COMPACTION])).cleanup_policy == {CleanupPolicy.COMPACT}
    assert configs.log_config("orders", {}).cleanup_policy == {CleanupPolicy.DELETE}


def test_followers_do_not_wait_for_longer_than_they_may_lag_or_leaders_may_be_silent() -> None:
    for given, complaint in (
        ({"replica.lag.time.max.ms": "499"}, "less than or equal to replica.lag.time.max.ms"),
        ({"replica.fetch.wait.max.ms": "1001"}, "1000"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            load(given)


IN_CLUSTER = {"zookeeper.connect": "zk:2181", "inter.broker.secret.file": "/secret"}


@pytest.mark.enforces("inter.broker.secret.file")
@pytest.mark.parametrize(
    ("given", "key", "complaint"),
    [
        ({"inter.broker.secret.file": ""}, "inter.broker.secret.file", "there has to be a secret"),
        ({"listeners": "OUTSIDE://:9092"}, "inter.broker.listener.name", "at which of the listeners"),
        ({"inter.broker.listener.name": "inside"}, "inter.broker.listener.name", "INSIDE is not among listeners"),
        ({"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable", "of all brokers at run time"),
    ],
)
def test_a_broker_of_a_cluster_that_others_could_not_count_on_is_refused(
    given: dict[str, str], key: str, complaint: str
) -> None:
    assert load(IN_CLUSTER)[0].is_in_cluster
    with pytest.raises(ConfigError, match=complaint) as refused:
        load(IN_CLUSTER | given)
    assert refused.value.key == key
