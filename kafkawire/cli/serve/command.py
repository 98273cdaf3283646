"""`kafkawire serve`: run one broker until SIGTERM or SIGINT."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("serve")
@click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--set",
    "--override",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property that overrides the file; may be repeated.",
)
def command(properties: Path | None, settings: tuple[str, ...]) -> None:
    """Run a broker with the server.properties file PROPERTIES, or with defaults.

    The variable KAFKA_NUM_PARTITIONS=3 of the environment overrides num.partitions in the file, and --set
    num.partitions=3 overrides both.
    """
    import structlog

    from kafkawire.broker import BrokerFailed, StartError
    from kafkawire.config.broker_config import ConfigError, load
    from kafkawire.config.properties import gather
    from kafkawire.process import log_output, run
    from kafkawire.process.siblings import ForeignSibling, check_siblings

    log_output.configure()
    log = structlog.get_logger()
    try:
        check_siblings()
        found = gather(properties, os.environ, settings)
        config, warnings = load(found.values, found.origins)
        for warning in warnings:
            log.warning(warning)
        run.run(config)
    except (ConfigError, ForeignSibling, StartError, BrokerFailed) as error:
        raise click.ClickException(str(error)) from None
