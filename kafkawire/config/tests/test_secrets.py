"""No message has the value of a password, wherever it is set and whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from kafkawire.cli.configs.command import command
from kafkawire.cli.configs.explanations import explanations
from kafkawire.config.broker_config import BROKER_KEYS, Config, ConfigError, load
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.config.keys import Key, is_secret
from kafkawire.config.properties import Properties, gather
from kafkawire.config.values import ConfigType, Reader
from kafkawire.messages import alter_configs, incremental_alter_configs
from kafkawire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import open_broker

SECRET = "hunter2"
BROKER = 4
# All of Kafka's keys of type PASSWORD; one with an older name, one with a listener's prefix, and a foreign one.
PASSWORDS = [
    "delegation.token.secret.key",
    "delegation.token.master.key",
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "listener.name.outside.ssl.key.password",
    "password.encoder.secret",
    "my.own.password",
]


def in_file(directory: Path, key: str, value: str) -> Properties:
    file = directory / "server.properties"
    file.write_text(f"{key}={value}\n")
    return gather(file, {}, [])


def in_environment(directory: Path, key: str, value: str) -> Properties:
    return gather(None, {"KAFKA_" + key.upper().replace(".", "_"): value}, [])


def as_setting(directory: Path, key: str, value: str) -> Properties:
    return gather(None, {}, [f"{key}={value}"])


@pytest.mark.parametrize("given", [in_file, in_environment, as_setting])
@pytest.mark.parametrize("key", PASSWORDS)
def test_a_password_that_is_given(tmp_path: Path, given: Callable[..., Properties], key: str) -> None:
    found = given(tmp_path, key, SECRET)
    assert found.values == {key: SECRET}
    try:
        _, problems = load(found.values, found.origins)
    except ConfigError as error:
        problems = [str(error)]
    assert len(problems) == 1, "an error or a warning"
    assert key in problems[0]
    assert SECRET not in problems[0]


@pytest.mark.parametrize("line", [rf"ssl.key.password={SECRET}\u12", rf"ssl.key.password={SECRET}\ud800"])
def test_a_line_that_is_no_text(tmp_path: Path, line: str) -> None:
    (tmp_path / "server.properties").write_text(line)
    with pytest.raises(ConfigError) as refused:
        gather(tmp_path / "server.properties", {}, [])
    assert "line 1" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("setting", [f"ssl.key.password:{SECRET}", SECRET, f"={SECRET}"])
def test_a_setting_that_sets_nothing(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gather(None, {}, [setting])
    assert SECRET not in str(refused.value)
    refusal = CliRunner().invoke(command, ["set", "--broker", "1", setting])
    assert refusal.exit_code == 2
    assert SECRET not in refusal.output


def test_every_password_is_of_a_sensitive_type() -> None:
    assert {name for name, key in BROKER_KEYS.items() if is_secret(name) and not key.is_sensitive} == set()
    assert [name for name in PASSWORDS if not is_secret(name) and name != "delegation.token.master.key"] == []
    assert not is_secret("num.partitions")


def refuse(value: str) -> str:
    raise ValueError("must be long enough")


def test_a_password_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key("a.password", Reader(ConfigType.PASSWORD, refuse), None, "A test's.")
    monkeypatch.setitem(BROKER_KEYS, key.name, key)
    monkeypatch.setattr("kafkawire.config.broker_config.KNOWN_KEYS", BROKER_KEYS)
    with pytest.raises(ConfigError, match=r"^a\.password: must be long enough$"):
        load({key.name: SECRET})


async def test_a_password_that_is_set_at_run_time() -> None:
    async with open_broker() as opened:
        client = opened.connect()
        with capture_logs() as logged:
            for key in PASSWORDS:
                incremental = incremental_alter_configs.AlterConfigsResource(
                    resource_type=BROKER,
                    resource_name="1",
                    configs=[incremental_alter_configs.AlterableConfig(name=key, config_operation=0, value=SECRET)],
                )
                whole = alter_configs.AlterConfigsResource(
                    resource_type=BROKER,
                    resource_name="1",
                    configs=[alter_configs.AlterableConfig(name=key, value=SECRET)],
                )
                for request in (
                    incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[incremental]),
                    alter_configs.AlterConfigsRequest(resources=[whole]),
                ):
                    reply = await client.call(request, 1)
                    assert key in repr(reply), "it says which"
                    assert SECRET not in repr(reply)
    assert SECRET not in repr(logged)


def test_a_password_in_the_metadata_of_the_cluster() -> None:
    """Another version of this broker may have left passwords there."""
    configs = EffectiveConfigs(Config())
    with capture_logs() as logged:
        configs.change({"1": dict.fromkeys(PASSWORDS, SECRET)})
    assert len(logged) == len(PASSWORDS)
    assert SECRET not in repr(logged)
    assert SECRET not in repr(configs.broker())
    assert SECRET not in repr(configs.config)


async def test_a_password_cannot_be_set_at_run_time() -> None:
    """Kafka keeps it in the metadata; here no client may change how the broker proves itself."""
    configs = [incremental_alter_configs.AlterableConfig(name="ssl.key.password", config_operation=0, value=SECRET)]
    for broker in ("1", ""):
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=BROKER, resource_name=broker, configs=configs
        )
        async with open_broker() as opened:
            request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
            reply: Any = await opened.connect().call(request, 1)
        assert reply.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_password_is_described_without_its_value() -> None:
    async with open_broker() as opened:
        asked = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
        reply = await opened.connect().call(request, 4)
        (row,) = (one for one in reply.results[0].configs if one.name == "delegation.token.secret.key")  # type: ignore[attr-defined]
        assert (row.value, row.is_sensitive, row.synonyms) == (None, True, [])


def test_a_password_is_explained() -> None:
    (found,) = explanations("delegation.token.secret.key")
    assert (found.type, found.default, found.status) == (
        "password",
        None,
        "not built yet: only the default is accepted",
    )
