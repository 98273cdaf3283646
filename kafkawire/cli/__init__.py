"""The `kafkawire` command: one module per subcommand, imported only when it is called."""

from __future__ import annotations

import importlib

import click

import kafkawire

COMMANDS = {
    "bench": "kafkawire.cli.bench",
    "brokers": "kafkawire.cli.brokers",
    "configs": "kafkawire.cli.configs",
    "consume": "kafkawire.cli.consume",
    "demo": "kafkawire.cli.demo",
    "doctor": "kafkawire.cli.doctor",
    "find": "kafkawire.cli.find",
    "groups": "kafkawire.cli.groups",
    "log-dirs": "kafkawire.cli.log_dirs",
    "metadata": "kafkawire.cli.metadata",
    "produce": "kafkawire.cli.produce",
    "segments": "kafkawire.cli.segments",
    "serve": "kafkawire.cli.serve",
    "tier": "kafkawire.cli.tier",
    "topics": "kafkawire.cli.topics",
    "transactions": "kafkawire.cli.transactions",
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
