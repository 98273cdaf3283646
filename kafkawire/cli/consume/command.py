"""`kafkawire consume`: records of a topic of any Kafka cluster to standard output."""

from __future__ import annotations

from typing import Any

import click

from kafkawire.cli.common.cluster_command import bootstrap_option, timeout_option
from kafkawire.cli.produce.command import FORMATS


@click.command("consume")
@click.argument("topic")
@click.option(
    "-p", "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="Read only this partition."
)
@click.option("--offset", metavar="N|start|end|@TIME", help="First offset to read.  [default: end]")
@click.option("--from-beginning", is_flag=True, help="The same as --offset start.")
@click.option(
    "-n", "--max-messages", "count_max", type=click.IntRange(min=1), help="Number of records after which to end."
)
@click.option("-e", "--exit-at-end", is_flag=True, help="End at the present end of the partitions.")
@click.option(
    "--isolation-level", "isolation", type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed", show_default=True, help="Leave out open and aborted transactions, or read them.",
)  # fmt: skip
@click.option("-K", "--key-separator", metavar="SEPARATOR", help="Write the key and this separator before each value.")
@click.option("--key-format", type=FORMATS, default="text", show_default=True, help="Format of the keys.")
@click.option("--value-format", type=FORMATS, default="text", show_default=True, help="Format of the values.")
@click.option("--progress/--no-progress", default=None, help="Show the progress on standard error.")
@bootstrap_option
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format: lines of values, or a JSON object per record.",
)  # fmt: skip
@timeout_option
@click.pass_context
def command(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Write the records of TOPIC to standard output, one a line."""
    from kafkawire.cli.consume.consuming import consume

    if given["from_beginning"] and given["offset"] is not None:
        raise click.UsageError("--from-beginning is an --offset, too")
    if given["key_separator"] is not None and given["output"] == "json":
        raise click.UsageError("--key-separator is for -o text")
    given["offset"] = "start" if given.pop("from_beginning") else given["offset"] or "end"
    context.exit(consume(bootstrap_server, context.obj, **given))
