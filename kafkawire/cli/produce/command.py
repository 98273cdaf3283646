"""`kafkawire produce`: records from standard input to a topic of any Kafka cluster."""

from __future__ import annotations

from typing import Any, Final

import click

from kafkawire.cli.common.cluster_command import bootstrap_option, output_option, timeout_option

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS: Final = click.Choice(["text", "json", "hex", "base64"])


@click.command("produce")
@click.argument("topic")
@click.option("-k", "--key", help="Key of all records.")
@click.option(
    "-K", "--key-separator", metavar="SEPARATOR", help="Split each line at this separator into key and value."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of all records; may be repeated."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Partition of all records; by default chosen by key, or in turns.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compression codec of the batches.",
)
@click.option("-Z", "--tombstone", "empty_is_null", is_flag=True, help="Send an empty value as null.")
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@click.option("--key-format", type=FORMATS, default="text", show_default=True, help="Format of the keys.")
@click.option("--value-format", type=FORMATS, default="text", show_default=True, help="Format of the values.")
@click.option(
    "--input", "input_form", type=click.Choice(["lines", "json"]), default="lines", show_default=True,
    help="Input format: a value per line, or an object as `consume -o json` prints it.",
)  # fmt: skip
@click.option("--progress/--no-progress", default=None, help="Show the progress on standard error.")
@bootstrap_option
@output_option
@timeout_option
@click.pass_context
def command(context: click.Context, /, bootstrap_server: str, **given: Any) -> None:
    """Send the lines of standard input to TOPIC until its end, one record a line."""
    from kafkawire.cli.produce.producing import produce

    if given["key_separator"] == "":
        raise click.UsageError("the key separator is empty")
    if given["key_separator"] is not None and (given["key"] is not None or given["input_form"] == "json"):
        raise click.UsageError("--key-separator goes with neither --key nor --input json")
    context.exit(produce(bootstrap_server, context.obj, **given))
