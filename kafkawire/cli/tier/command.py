"""`kafkawire tier`: the content of a broker's remote tier, and the restore of a broker from it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkawire.cli.common.cluster_command import Report, output_option, printable, show
from kafkawire.cli.tier import reports

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config
    from kafkawire.deps import Deps

Work = Callable[["Config", "Deps"], Awaitable[Report]]


def tier_command(function: Callable[..., Work]) -> Callable[..., None]:
    """Make a click command of a function: add the options that name a configuration, run the returned Work, show its
    Report.
    """

    @click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Property that overrides the file; may be repeated.",
    )
    @click.option("--cluster-id", help="Cluster in the store; by default that of the log dirs, or the only one.")
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
        from kafkawire.process.tier_part import TierUnknown
        from tiering.errors import TierError
        from tiering.object_store import StoreError

        log_output.configure()
        try:
            given = gather(properties, os.environ, settings)
            config, _ = load(given.values, given.origins)
            report = trio.run(partial(_with_deps, function(**arguments), config, context.obj))
        except (ConfigError, RestoreRefused, StoreError, TierError, TierUnknown) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


async def _with_deps(work: Work, config: Config, deps: Deps | None) -> Report:
    from kafkawire.deps import real_deps

    return await work(config, deps or real_deps())


@click.group("tier")
def command() -> None:
    """Show the remote tier that a broker is configured for, and restore a broker from it."""


@command.command("status")
@tier_command
def status(cluster_id: str | None) -> Work:
    """Show the content of the tier for each partition, by its newest manifest. The broker may run meanwhile."""

    async def work(config: Config, deps: Deps) -> Report:
        from kafkawire.process.tier_part import open_part, survey
        from tiering.ownership import newest_owner

        part = await open_part(config, deps, cluster_id)
        owner_generation = await newest_owner(part.store, part.root, part.cluster_id)
        return reports.status(part, owner_generation, await survey(part, _print_progress))

    return work


@command.command("verify")
@click.option("--read", "reads", is_flag=True, help="Read every object, instead of its metadata alone.")
@tier_command
def verify(cluster_id: str | None, *, reads: bool) -> Work:
    """Check that every copied segment is in the store, with its size and CRC.

    The exit code is 1 if an object is missing or wrong. The broker may run meanwhile.
    """

    async def work(config: Config, deps: Deps) -> Report:
        from kafkawire.process.tier_part import open_part, survey
        from tiering.inventory.audit import Audited, audit

        part, found = await open_part(config, deps, cluster_id), Audited()
        for topic in await survey(part, _print_progress):
            for number, holding in enumerate(topic.partitions):
                if isinstance(holding, str):
                    found.problems.append(holding)
                    continue
                _print_progress(f"verifying {topic.topic.topic}-{number}: {holding.segments} segments")
                await audit(part, holding, found, reads=reads)
        return reports.verified(found, reads=reads)

    return work


@command.command("gc")
@click.option("--dry-run", is_flag=True, help="List the objects, and delete nothing.")
@tier_command
def gc(cluster_id: str | None, *, dry_run: bool) -> Work:
    """Delete objects that no manifest names and that are older than a day. The broker may run meanwhile.

    Such objects come from fenced writers, and from requests that took effect late. They harm nothing but cost space.
    """

    async def work(config: Config, deps: Deps) -> Report:
        from kafkawire.process.tier_part import open_part
        from tiering.gc import delete_leftovers, leftovers

        part = await open_part(config, deps, cluster_id)
        found = await leftovers(part, deps.now_ms())
        return reports.collected(found, None if dry_run else await delete_leftovers(part, found))

    return work


@command.command("restore")
@click.option("--dry-run", is_flag=True, help="Show what can be restored, and change nothing.")
@tier_command
def restore(cluster_id: str | None, *, dry_run: bool) -> Work:
    """Fill the empty directories of a broker from its remote tier.

    Topics come back with their ids and configs, records up to the end of the copied segments, leader epochs, and
    committed offsets of groups. The table shows the end of each partition; records that were not copied are lost.

    The earlier owner of the tier is fenced: stop it first, if it still runs. If the log dirs have the cluster's
    partitions, they stay as they are, and only the metadata are restored.
    """

    async def work(config: Config, deps: Deps) -> Report:
        from kafkawire.process.restoration import Restoration

        restoration = Restoration(config, deps, _print_progress)
        plan = await restoration.plan(cluster_id)
        return reports.restored(plan, None if dry_run else await restoration.carry_out(plan))

    return work


def _print_progress(line: str) -> None:
    """Print a line on standard error."""
    click.echo(printable(line), err=True)
