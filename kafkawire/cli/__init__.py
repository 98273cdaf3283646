"""The `kafkawire` command: one module per subcommand, imported only when it is called."""

from __future__ import annotations

import importlib

import click

import kafkawire

COMMANDS = {
    "bench": "kafkawire.cli.bench.command",
    "brokers": "kafkawire.cli.brokers.command",
    "configs": "kafkawire.cli.configs.command",
    "consume": "kafkawire.cli.consume.command",
    "demo": "kafkawire.cli.demo.command",
    "doctor": "kafkawire.cli.doctor.command",
    "find": "kafkawire.cli.find.command",
    "groups": "kafkawire.cli.groups.command",
    "log-dirs": "kafkawire.cli.log_dirs.command",
    "metadata": "kafkawire.cli.metadata.command",
    "produce": "kafkawire.cli.produce.command",
    "segments": "kafkawire.cli.segments.command",
    "serve": "kafkawire.cli.serve.command",
    "tier": "kafkawire.cli.tier.command",
    "topics": "kafkawire.cli.topics.command",
    "transactions": "kafkawire.cli.transactions.command",
}


class LazyGroup(click.Group):
    """Group that imports a subcommand when it is named, so that `--help` imports no broker."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The click command called `cmd_name`, or None."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kafkawire.__version__)
def main() -> None:
    """A Kafka-compatible broker."""
