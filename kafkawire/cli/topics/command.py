"""`kafkawire topics`: the topics of any Kafka cluster."""

from __future__ import annotations

from functools import partial

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command


@click.group("topics")
def command() -> None:
    """List, describe, create, alter and delete topics."""


@command.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
@cluster_command
def list_topics(exclude_internal: bool) -> Work:
    """List topics."""
    from kafkawire.cli.topics import reports

    return partial(reports.report_list, exclude_internal=exclude_internal)


@command.command("describe")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--all", "every", is_flag=True, help="All topics.")
@click.option("--lag", is_flag=True, help="Ask each broker for the lag of its replicas, in records.")
@cluster_command
def describe(topics: tuple[str, ...], every: bool, lag: bool) -> Work:
    """Show the partitions of TOPICs: leader, replicas, ISR, and other replicas that can be elected."""
    from kafkawire.cli.topics import reports

    if every == bool(topics):
        raise click.UsageError("name topics, or give --all")
    return partial(reports.report_partitions, names=None if every else topics, with_lag=lag)


@command.command("create")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions; by default that of the broker's configuration.",
)
@click.option(
    "--replicas", type=click.IntRange(min=1), help="Replication factor; by default that of the broker's configuration."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Config of the topics; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists.")
@click.option("--dry-run", is_flag=True, help="Only validate the request.")
@cluster_command
def create(
    topics: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> Work:
    """Create TOPICs."""
    from kafkawire.cli.topics import reports
    from kafkawire.client.topics import NewTopic

    pairs = [one.partition("=") for one in settings]
    for key, separator, value in pairs:
        if not separator or not key:
            raise click.UsageError(f"not KEY=VALUE: {key}{value}")
    configs = {key: value for key, _, value in pairs}
    new = [NewTopic(name, partitions or -1, replicas or -1, configs) for name in topics]
    return partial(reports.report_create, topics=new, may_exist=if_not_exists, dry_run=dry_run)


@command.command("alter")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="Total number of partitions.")
@click.option("--dry-run", is_flag=True, help="Only validate the request.")
@cluster_command
def alter(topics: tuple[str, ...], partitions: int, dry_run: bool) -> Work:
    """Add partitions to TOPICs. Their configs change with `configs set`."""
    from kafkawire.cli.topics import reports

    return partial(reports.report_alter, counts=dict.fromkeys(topics, partitions), dry_run=dry_run)


@command.command("delete")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Succeed if the topic does not exist.")
@cluster_command
def delete(topics: tuple[str, ...], if_exists: bool) -> Work:
    """Delete TOPICs with all their records."""
    from kafkawire.cli.topics import reports

    return partial(reports.report_delete, names=topics, may_lack=if_exists)
