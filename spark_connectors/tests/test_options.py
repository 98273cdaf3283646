"""Options are parsed, and options that cannot be obeyed are refused by name."""

from __future__ import annotations

import pytest

from spark_connectors.options import (
    HARMLESS,
    OptionRefused,
    Options,
    bootstrap_of,
    duration_s,
    milliseconds_as_s,
    positive,
    settings_of,
    truth,
    whole_number,
)
from spark_connectors.wire import Address, Settings


def test_names_have_no_case() -> None:
    options = Options({"FAILondataLOSS": " true "})
    assert options.text("failOnDataLoss") == "true"
    assert options.text("subscribe") is None
    options.finish()


def test_a_table_is_refused_with_the_statement_that_works() -> None:
    """Spark passes properties of the table at CREATE TABLE, and nothing when it reads the table."""
    options = {"option.subscribe": "t", "owner": "me", "provider": "kafkawire", "subscribe": "t"}
    with pytest.raises(OptionRefused, match="CREATE TEMPORARY VIEW … USING kafkawire works"):
        Options(options).finish()


def test_unknown_option_is_refused_with_a_suggestion() -> None:
    options = Options({"subscribee": "t"})
    options.text("subscribe")
    with pytest.raises(OptionRefused, match=r"option subscribee is not known.*is subscribe meant\?"):
        options.finish()
    with pytest.raises(OptionRefused, match=r"option quite.different is not known, so nothing would obey it$"):
        Options({"quite.different": "x"}).finish()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kafka.auto.offset.reset", "say startingOffsets instead"),
        ("kafka.enable.auto.commit", "checkpoint"),
        ("kafka.interceptor.classes", "Java"),
        ("kafka.key.deserializer", "keys are bytes"),
        ("kafka.value.deserializer", "values are bytes"),
        ("kafka.sasl.jaas.config", "no authentication but by certificates"),
        ("kafka.ssl.truststore.password", "TLS with PEM files"),
        ("kafka.security.providers", "TLS with PEM files"),
    ],
)
def test_settings_of_clients_that_cannot_be_obeyed(name: str, why: str) -> None:
    options = Options({name: "x"})
    settings_of(options)
    with pytest.raises(OptionRefused, match=f"option {name} cannot be obeyed: .*{why}"):
        options.finish()


def test_security() -> None:
    assert settings_of(Options({"kafka.security.protocol": "plaintext"})) == Settings()
    with pytest.raises(OptionRefused, match=r"option kafka.security.protocol cannot be SASL_SSL"):
        settings_of(Options({"kafka.security.protocol": "SASL_SSL"}))


def test_settings_of_clients_that_are_obeyed() -> None:
    options = Options(
        {
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "1500",
            "kafka.default.api.timeout.ms": "2500",
            "kafka.retry.backoff.ms": "10",
            "kafka.retry.backoff.max.ms": "20",
            "kafka.socket.connection.setup.timeout.ms": "30",
        }
    )
    assert settings_of(options) == Settings("me", 0.03, 1.5, 2.5, 0.01, 0.02)
    options.finish()


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_settings_of_clients_without_effect(name: str) -> None:
    options = Options({f"kafka.{name}": "x"})
    assert settings_of(options) == Settings()
    options.finish()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:3,[::2]", [("::1", 3), ("::2", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers(text: str, addresses: list[tuple[str, int]]) -> None:
    assert bootstrap_of(Options({"kafka.bootstrap.servers": text})) == tuple(Address(*one) for one in addresses)


@pytest.mark.parametrize("text", ["a:0", "a:65536", ":1", "a:b"])
def test_bootstrap_servers_that_are_none(text: str) -> None:
    with pytest.raises(OptionRefused, match=r"option kafka.bootstrap.servers: not host:port"):
        bootstrap_of(Options({"kafka.bootstrap.servers": text}))


@pytest.mark.parametrize("options", [{}, {"kafka.bootstrap.servers": " "}])
def test_bootstrap_servers_are_required(options: dict[str, str]) -> None:
    with pytest.raises(OptionRefused, match=r"option kafka.bootstrap.servers is required"):
        bootstrap_of(Options(options))


def test_invalid_value_is_refused_with_its_option_name() -> None:
    with pytest.raises(OptionRefused, match="option minPartitions: 'x' is no whole number"):
        Options({"minpartitions": "x"}).parsed("minPartitions", positive, 1)
    assert Options({}).parsed("minPartitions", positive, 1) == 1


def test_numbers_and_truths() -> None:
    assert (whole_number("0"), positive("1"), milliseconds_as_s("1500"), truth("TRUE"), truth("false")) == (
        0, 1, 1.5, True, False,
    )  # fmt: skip
    for parse, text in (
        (whole_number, "-1"),
        (whole_number, "1.5"),
        (positive, "0"),
        (milliseconds_as_s, "0"),
        (truth, "yes"),
    ):
        with pytest.raises(ValueError, match=r"below|no whole|neither"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("20s", 20), ("500ms", 0.5), ("250", 0.25), ("1min", 60), ("2h", 7200), ("1d", 86400), ("3 S", 3)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.5s", "1 fortnight"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        duration_s(text)
