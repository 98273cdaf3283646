"""`kafkawire tier`: what lies in a broker's remote tier, looked at from outside, and a broker made anew from it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkawire.cli import tier_reports
from kafkawire.cli.cluster_command import Report, output_option, printable, show

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config
    from kafkawire.surroundings import Surroundings

Work = Callable[["Config", "Surroundings"], Awaitable[Report]]


def tier_command(function: Callable[..., Work]) -> Callable[..., None]:
    """The options that name a broker's configuration, and doing what the command says with it."""

    @click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A property; may be repeated.")
    @click.option("--cluster-id", help="Whose part of the tier; by default that of the log dirs, or the only one.")
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
            report = trio.run(partial(_in_world, function(**arguments), config, context.obj))
        except (ConfigError, RestoreRefused, StoreError, TierError, TierUnknown) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


async def _in_world(work: Work, config: Config, world: Surroundings | None) -> Report:
    from kafkawire.surroundings import real_surroundings

    return await work(config, world or real_surroundings())


@click.group("tier")
def command() -> None:
    """Look at the remote tier that a broker is configured for, and restore a broker from it."""


@command.command("status")
@tier_command
def status(cluster_id: str | None) -> Work:
    """Show what the tier has of each partition, by its newest manifest. The broker may run meanwhile."""

    async def work(config: Config, world: Surroundings) -> Report:
        from kafkawire.process.tier_part import open_part, survey
        from tiering.ownership import newest_owner

        part = await open_part(config, world, cluster_id)
        owner_generation = await newest_owner(part.store, part.root, part.cluster_id)
        return tier_reports.status(part, owner_generation, await survey(part, _tell))

    return work


@command.command("verify")
@click.option("--read", "reads", is_flag=True, help="Read every object, and not only ask the store about it.")
@tier_command
def verify(cluster_id: str | None, *, reads: bool) -> Work:
    """Look whether every segment that is copied is there, with the size and the CRC it had.

    The exit code is 1 when something is missing or wrong. The broker may run meanwhile.
    """

    async def work(config: Config, world: Surroundings) -> Report:
        from kafkawire.process.tier_part import open_part, survey
        from tiering.audit import Audited, audit

        part, found = await open_part(config, world, cluster_id), Audited()
        for topic in await survey(part, _tell):
            for number, holding in enumerate(topic.partitions):
                if isinstance(holding, str):
                    found.problems.append(holding)
                    continue
                _tell(f"verifying {topic.topic.topic}-{number}: {holding.segments} segments")
                await audit(part, holding, found, reads=reads)
        return tier_reports.verified(found, reads=reads)

    return work


@command.command("gc")
@click.option("--dry-run", is_flag=True, help="Say what there is, and delete nothing.")
@tier_command
def gc(cluster_id: str | None, *, dry_run: bool) -> Work:
    """Delete objects that no manifest names and that are older than a day. The broker may run meanwhile.

    They come of writers that were fenced, and of requests that took effect late. Nothing needs this to be done.
    """

    async def work(config: Config, world: Surroundings) -> Report:
        from kafkawire.process.tier_part import open_part
        from tiering.leftovers import delete_leftovers, leftovers

        part = await open_part(config, world, cluster_id)
        found = await leftovers(part, world.now_ms())
        return tier_reports.left(found, None if dry_run else await delete_leftovers(part, found))

    return work


@command.command("restore")
@click.option("--dry-run", is_flag=True, help="Say what there is, and do nothing.")
@tier_command
def restore(cluster_id: str | None, *, dry_run: bool) -> Work:
    """Make the empty directories of a broker anew from what its remote tier has.

    Topics come back with their ids and configs, records up to where they were copied, leader epochs, and what groups
    had committed. Whoever owned the tier before is fenced: stop it first, if it still runs. The table says up to where
    each partition comes back; what was not copied is lost. Log dirs that have the cluster's partitions stay as they
    are: then only its metadata are made anew.
    """

    async def work(config: Config, world: Surroundings) -> Report:
        from kafkawire.process.restoration import Restoration

        restoration = Restoration(config, world, _tell)
        plan = await restoration.plan(cluster_id)
        return tier_reports.restored(plan, None if dry_run else await restoration.carry_out(plan))

    return work


def _tell(line: str) -> None:
    """To whoever waits."""
    click.echo(printable(line), err=True)
