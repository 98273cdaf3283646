"""`kafkawire tier`: what lies in a broker's remote tier, looked at from outside, and a broker made anew from it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkawire.cli.cluster_command import Report, output_option, printable, show

if TYPE_CHECKING:
    from kafkawire.broker import Surroundings
    from kafkawire.config.broker_config import Config
    from kafkawire.process.restoration import Restored, RestorePlan

_PLAN_COLUMNS: Final = ("PARTITION", "LOG-START", "END", "SEGMENTS", "BYTES", "WRITTEN")
Work = Callable[["Config", "Surroundings"], Awaitable[Report]]


def tier_command(function: Callable[..., Work]) -> Callable[..., None]:
    """The options that name a broker's configuration, and doing what the command says with it."""

    @click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A property; may be repeated.")
    @output_option
    @click.pass_context
    def run(
        context: click.Context,
        /,
        properties: Path | None,
        settings: tuple[str, ...],
        output: str,
        **arguments: Any,
    ) -> None:
        import trio

        from kafkawire.config.broker_config import ConfigError, load
        from kafkawire.config.properties import gather
        from kafkawire.process import log_output
        from kafkawire.process.restoration import RestoreRefused

        log_output.configure()
        try:
            given = gather(properties, os.environ, settings)
            config, _ = load(given.values, given.origins)
            report = trio.run(partial(_in_world, function(**arguments), config, context.obj))
        except (ConfigError, RestoreRefused) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


async def _in_world(work: Work, config: Config, world: Surroundings | None) -> Report:
    from kafkawire.broker import real_surroundings

    return await work(config, world or real_surroundings())


@click.group("tier")
def command() -> None:
    """Look at the remote tier that a broker is configured for, and restore a broker from it."""


@command.command("restore")
@click.option("--cluster-id", help="Whose part of the tier; needed when there are several.")
@click.option("--dry-run", is_flag=True, help="Say what there is, and do nothing.")
@tier_command
def restore(cluster_id: str | None, *, dry_run: bool) -> Work:
    """Make the empty directories of a broker anew from what its remote tier has.

    Topics come back with their ids and configs, records up to where they were copied, leader epochs, and what groups
    had committed. Whoever owned the tier before is fenced: stop it first, if it still runs. The table says up to where
    each partition comes back; what was not copied is lost.
    """

    async def work(config: Config, world: Surroundings) -> Report:
        from kafkawire.process.restoration import Restoration

        restoration = Restoration(config, world, lambda line: click.echo(printable(line), err=True))
        plan = await restoration.plan(cluster_id)
        if dry_run:
            return _restore_report(plan, None)
        return _restore_report(plan, await restoration.carry_out(plan))

    return work


def _restore_report(plan: RestorePlan, restored: Restored | None) -> Report:
    from kafkawire.cli.cluster_command import shown_time

    document, rows = [], []
    for topic, number, holding in plan.partitions():
        name, size_bytes = f"{topic.topic.topic}-{number}", holding.manifest.size_bytes
        document.append(
            {
                "topic": topic.topic.topic,
                "partition": number,
                "log_start_offset": holding.log_start,
                "end_offset": holding.end,
                "segments": holding.segments,
                "size_bytes": size_bytes,
                "written_ms": holding.manifest.written_ms,
            }
        )
        written = shown_time(holding.manifest.written_ms) if holding.manifest.version else None
        rows.append((name, holding.log_start, holding.end, holding.segments, size_bytes, written))
    report = Report(
        {"cluster_id": plan.part.cluster_id, "owner_generation": plan.owner_generation, "partitions": document},
        _PLAN_COLUMNS,
        rows,
        problems=[f"{one}: it is not restored, nor is its topic" for one in plan.problems],
    )
    if restored is None:
        report.remarks.append("nothing was changed")
    else:
        report.remarks.append(_said(restored))
        report.problems += restored.problems
    return report


def _said(restored: Restored) -> str:
    clamped = f", {restored.clamped} of them moved to where records are" if restored.clamped else ""
    return f"restored; {restored.offsets} committed offsets{clamped}; start the broker now"
