"""`kafkawire doctor`: problems of a broker with this configuration on this machine, and optionally of its records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkawire.cli.common.cluster_command import Report, output_option, printable, show

if TYPE_CHECKING:
    from engine.files.filesystem import FileSystem
    from kafkawire.config.broker_config import Config
    from kafkawire.process.doctor import DirFacts, Finding

COLUMNS: Final = ("", "ABOUT", "FINDING", "ADVICE")


@click.command("doctor")
@click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Property that overrides the file; may be repeated."
)
@click.option("--scan", is_flag=True, help="Read all batches and compare them with their CRCs.")
@click.option(
    "--accept-loss", is_flag=True,
    help="Accept the loss of damaged or missing records, so that their logs open. Implies --scan.",
)  # fmt: skip
@output_option
@click.pass_context
def command(
    context: click.Context,
    properties: Path | None,
    settings: tuple[str, ...],
    scan: bool,
    accept_loss: bool,
    output: str,
) -> None:
    """Examine the configuration of `serve`, its directories, this machine, and the servers that it needs.

    The exit code is 1 if there is a problem: a broker cannot start, or records are lost.
    """
    import trio

    from kafkawire.config.broker_config import ConfigError, load
    from kafkawire.config.properties import gather
    from kafkawire.process import log_output, machine_facts
    from kafkawire.process.doctor import Finding, Severity, examine
    from kafkawire.process.tls_findings import examine_tls

    log_output.configure()
    findings: list[Finding] = []
    try:
        given = gather(properties, os.environ, settings)
        config, warnings = load(given.values, given.origins)
    except ConfigError as error:
        findings.append(Finding(Severity.PROBLEM, "configuration", str(error), "a broker does not start with it"))
    else:
        findings += [Finding(Severity.NOTE, "configuration", warning) for warning in warnings]
        dirs = [machine_facts.log_dir(path) for path in config.log_dirs]
        findings += examine(config, machine_facts.machine(), dirs)
        findings += examine_tls(config)
        findings += trio.run(_of_zookeeper, config, dirs)
        findings += trio.run(_of_tier, config)
        if scan or accept_loss:
            findings += _scan(config, dirs, accept_loss=accept_loss)
    show(_report(findings), as_json=output == "json")
    if any(one.severity is Severity.PROBLEM for one in findings):
        context.exit(1)


async def _of_zookeeper(config: Config, dirs: Sequence[DirFacts]) -> list[Finding]:
    from kafkawire.process.zookeeper_findings import examine_zookeeper

    return await examine_zookeeper(config, dirs)


async def _of_tier(config: Config) -> list[Finding]:
    from kafkawire.deps import real_deps
    from kafkawire.process.tier_findings import examine_tier

    return await examine_tier(config, real_deps()) if config.tier_store else []


def _scan(config: Config, dirs: Sequence[DirFacts], *, accept_loss: bool) -> list[Finding]:
    from engine.errors import EngineError, StoreRefused
    from engine.files.filesystem import PosixFileSystem
    from kafkawire.process.doctor import Finding, Severity

    findings: list[Finding] = []
    filesystem = PosixFileSystem()
    for one in dirs:
        if one.exists and not one.is_in_use and one.owner is not None:
            try:
                if accept_loss:
                    findings += _repair(filesystem, one)
                findings += _damage(filesystem, one)
            except (EngineError, StoreRefused, OSError) as error:
                findings.append(Finding(Severity.PROBLEM, f"log dir {one.path}", str(error)))
    return findings


def _repair(filesystem: FileSystem, one: DirFacts) -> list[Finding]:
    from engine.offline.repair import repair
    from kafkawire.process.doctor import Finding, Severity

    outcome = repair(filesystem, one.path, accept_loss=True)
    return [Finding(Severity.NOTE, f"log dir {one.path}", line) for line in outcome.done]


def _damage(filesystem: FileSystem, one: DirFacts) -> list[Finding]:
    """Findings of `kafkawire segments verify` in a log dir."""
    from engine.logs.segments.segment import segment_name
    from engine.offline.inspection import held, partitions, segment_files, verify
    from kafkawire.process.doctor import Finding, Severity

    findings: list[Finding] = []
    with held(filesystem, one.path):
        for partition in partitions(filesystem, one.path):
            for segment in segment_files(filesystem, partition.directory):
                verdict = verify(filesystem, partition, segment)
                if verdict.problem is not None:
                    name = f"{partition.directory.rpartition('/')[2]}/{segment_name(segment.base_offset)}"
                    severity = Severity.NOTE if verdict.is_torn else Severity.PROBLEM
                    advice = (
                        "behind the last durable record: the next start truncates it"
                        if verdict.is_torn
                        else "it is not served; restore the file, or use --accept-loss"
                    )
                    findings.append(Finding(severity, name, verdict.problem, advice))
    return findings


def _report(findings: Sequence[Finding]) -> Report:
    rows = [(one.severity.value, one.subject, one.text, one.advice or None) for one in findings]
    document = [dict(zip(("severity", "about", "finding", "advice"), row, strict=True)) for row in rows]
    remarks = [] if findings else ["nothing to complain about"]
    return Report(document, COLUMNS, [tuple(map(_cell, row)) for row in rows] or (), remarks=remarks)


def _cell(text: str | None) -> str | None:
    return None if text is None else printable(text)
