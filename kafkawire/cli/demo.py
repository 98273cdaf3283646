"""`kafkawire demo`: the way of a record through a broker, and what to type next."""

from __future__ import annotations

from functools import partial

import click

from kafkawire.cli.cluster_command import Work, cluster_command


@click.command("demo")
@click.option("--topic", default="demo", show_default=True, help="Created if there is none.")
@cluster_command
def command(topic: str) -> Work:
    """Start a broker if none listens, create a topic, produce records, read them back, and show what to type next."""
    from kafkawire.cli import demonstration

    return partial(demonstration.demonstrate, topic=topic, start=demonstration.start_broker)
