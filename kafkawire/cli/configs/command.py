"""`kafkawire configs`: configs of topics and brokers of any Kafka cluster, and explanations of kafkawire's keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command

if TYPE_CHECKING:
    from kafkawire.client.configs import Resource

_OF: Final = (
    click.option("--topic", metavar="TOPIC", help="Topic whose configs are meant."),
    click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="Broker whose configs are meant."),
    click.option("--all-brokers", is_flag=True, help="Dynamic default configs of all brokers."),
)


def of_resource(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the resource."""
    for option in reversed(_OF):
        function = option(function)
    return function


@click.group("configs")
def command() -> None:
    """Show, change and explain configs."""


@command.command("get")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@of_resource
@click.option("--all", "every", is_flag=True, help="Include keys that have their default value.")
@cluster_command
def get(keys: tuple[str, ...], topic: str | None, broker: int | None, all_brokers: bool, every: bool) -> Work:
    """Show KEYs, or all keys that are set, and where they are set."""
    from kafkawire.cli.configs import reports

    resource = _resource(topic, broker, all_brokers)
    return partial(reports.report_configs, resource=resource, keys=keys, every=every or bool(keys))


@command.command("set")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@of_resource
@click.option("--delete", multiple=True, metavar="KEY", help="Key to set back to its default; may be repeated.")
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Values to append to a list; may be repeated.")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Values to remove from a list; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only validate the change.")
@cluster_command
def set_configs(
    settings: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    dry_run: bool,
    **others: tuple[str, ...],
) -> Work:
    """Change configs, all or none of them."""
    from kafkawire.cli.configs import reports
    from kafkawire.client.configs import Change, Operation

    wanted = [(Operation.SET, settings), *((Operation[name.upper()], values) for name, values in others.items())]
    changes = [
        Change(how, *((one, None) if how is Operation.DELETE else _split(one)))
        for how, values in wanted
        for one in values
    ]
    if not changes:
        raise click.UsageError("name a change: KEY=VALUE, --delete, --append or --subtract")
    resource = _resource(topic, broker, all_brokers)
    return partial(reports.report_changes, resource=resource, changes=changes, dry_run=dry_run)


def _split(setting: str) -> tuple[str, str]:
    key, separator, value = setting.partition("=")
    if not separator or not key:
        raise click.UsageError("not KEY=VALUE")  # the text is not quoted: it may hold a password
    return key, value


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> Resource:
    from kafkawire.client import configs

    if [topic is not None, broker is not None, all_brokers].count(True) != 1:
        raise click.UsageError("give one of --topic, --broker, --all-brokers")
    if topic is not None:
        return configs.Resource(configs.TOPIC, topic)
    return configs.Resource(configs.BROKER, "" if broker is None else str(broker))


@command.command("explain")
@click.argument("key")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(key: str, output: str) -> None:
    """Explain KEY of topics or brokers, without a cluster."""
    import json

    from kafkawire.cli.configs.explanations import Explanation, explanations, similar

    found: Sequence[Explanation] = explanations(key)
    if not found:
        others = "".join(f", did you mean {name}?" for name in similar(key))
        raise click.ClickException(f"{key} is not a key of topics or brokers{others}")
    if output == "json":
        documents: list[dict[str, Any]] = [one.document() for one in found]
        click.echo(json.dumps(documents, indent=2))
    else:
        click.echo("\n\n".join(one.text() for one in found))
