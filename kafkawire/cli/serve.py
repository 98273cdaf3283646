"""`kafkawire serve`: runs one broker until SIGTERM or SIGINT."""

from __future__ import annotations

from pathlib import Path

import click

from kafkawire.config import ConfigError, load, read_properties


@click.command("serve")
@click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one property; may be repeated.")
def command(properties: Path | None, overrides: tuple[str, ...]) -> None:
    """Run a broker with the server.properties file PROPERTIES, or with defaults."""
    import structlog

    from kafkawire import logs, process
    from kafkawire.broker import BrokerFailed, StartError
    from kafkawire.siblings import StrangeSibling, check_siblings

    logs.configure()
    log = structlog.get_logger()
    try:
        check_siblings()
        values = read_properties(text_of(properties)) if properties else {}
        for override in overrides:
            values.update(read_properties(override))
        config, warnings = load(values)
        for warning in warnings:
            log.warning(warning)
        process.run(config)
    except (ConfigError, StrangeSibling, StartError, BrokerFailed) as error:
        raise click.ClickException(str(error)) from None


def text_of(properties: Path) -> str:
    """Errors: ConfigError."""
    try:
        return properties.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{properties} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{properties}: {error.strerror or error}") from None
