"""`kafkawire topics`: the topics of any Kafka cluster."""

from __future__ import annotations

from functools import partial

import click

from kafkawire.cli.cluster_command import Work, cluster_command


@click.group("topics")
def command() -> None:
    """List, describe, create, alter and delete topics."""


@command.command("list")
@click.option("--exclude-internal", is_flag=True, help="Not those that brokers write themselves.")
@cluster_command
def list_topics(exclude_internal: bool) -> Work:
    """List topics."""
    from kafkawire.cli import topic_reports

    return partial(topic_reports.report_list, exclude_internal=exclude_internal)


@command.command("describe")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--all", "every", is_flag=True, help="All topics.")
@click.option("--lag", is_flag=True, help="Ask each broker how many records its replicas lack.")
@cluster_command
def describe(topics: tuple[str, ...], every: bool, lag: bool) -> Work:
    """Show the partitions of TOPICs: who leads them, who has them, who is in sync, and who else may lead."""
    from kafkawire.cli import topic_reports

    if every == bool(topics):
        raise click.UsageError("name topics, or give --all")
    return partial(topic_reports.report_partitions, names=None if every else topics, with_lag=lag)


@command.command("create")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(min=1), help="How many; else what brokers are configured for.")
@click.option("--replicas", type=click.IntRange(min=1), help="How many; else what brokers are configured for.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A config; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="That there is one already is no error.")
@click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
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
    from kafkawire.cli import topic_reports
    from kafkawire.client.topics import NewTopic

    pairs = [one.partition("=") for one in settings]
    for key, separator, value in pairs:
        if not separator or not key:
            raise click.UsageError(f"not KEY=VALUE: {key}{value}")
    configs = {key: value for key, _, value in pairs}
    new = [NewTopic(name, partitions or -1, replicas or -1, configs) for name in topics]
    return partial(topic_reports.report_create, topics=new, may_exist=if_not_exists, dry_run=dry_run)


@command.command("alter")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="How many it is to have in all.")
@click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
@cluster_command
def alter(topics: tuple[str, ...], partitions: int, dry_run: bool) -> Work:
    """Give TOPICs more partitions. Their configs change with `configs set`."""
    from kafkawire.cli import topic_reports

    return partial(topic_reports.report_alter, counts=dict.fromkeys(topics, partitions), dry_run=dry_run)


@command.command("delete")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="That there is none is no error.")
@cluster_command
def delete(topics: tuple[str, ...], if_exists: bool) -> Work:
    """Delete TOPICs with all their records."""
    from kafkawire.cli import topic_reports

    return partial(topic_reports.report_delete, names=topics, may_lack=if_exists)
