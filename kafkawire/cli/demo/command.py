"""`kafkawire demo`: send a record through a broker, and suggest commands to type next."""

from __future__ import annotations

from functools import partial

import click

from kafkawire.cli.common.cluster_command import Work, cluster_command


@click.command("demo")
@click.option("--topic", default="demo", show_default=True, help="Topic to use; it is created if it does not exist.")
@cluster_command
def command(topic: str) -> Work:
    """Start a broker if none listens, create a topic, produce and consume records, and suggest the next commands."""
    from kafkawire.cli.demo import demonstration

    return partial(demonstration.demonstrate, topic=topic, start=demonstration.start_broker)
