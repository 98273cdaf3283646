"""`kafkawire brokers`: the brokers of any Kafka cluster."""

from __future__ import annotations

from functools import partial

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command


@click.group("brokers")
def command() -> None:
    """List and describe brokers, and unregister brokers that are gone."""


@command.command("list")
@cluster_command
def list_brokers() -> Work:
    """List brokers: addresses, whether they are up, how many partitions they lead and host."""
    from kafkawire.cli.brokers import reports

    return reports.report_list


@command.command("describe")
@click.argument("brokers", nargs=-1, type=click.IntRange(min=0), metavar="[BROKER]...")
@click.option("--all", "every", is_flag=True, help="All brokers.")
@cluster_command
def describe(brokers: tuple[int, ...], every: bool) -> Work:
    """Show BROKERs: the same as `list`, their log dirs, and their dynamic configs."""
    from kafkawire.cli.brokers import reports

    if every == bool(brokers):
        raise click.UsageError("name brokers by their ids, or give --all")
    return partial(reports.report_describe, broker_ids=None if every else brokers)


@command.command("unregister")
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(min=0), metavar="BROKER...")
@cluster_command
def unregister(brokers: tuple[int, ...]) -> Work:
    """Unregister BROKERs that are gone for good."""
    from kafkawire.cli.brokers import reports

    return partial(reports.report_unregister, broker_ids=brokers)
