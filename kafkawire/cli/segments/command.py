"""`kafkawire segments`: the content of a log dir, on its own machine, while no broker runs on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkawire.cli.common.cluster_command import Report, output_option, printable, show, shown_time

if TYPE_CHECKING:
    from engine.batches.batch import BatchHeader
    from engine.files.filesystem import FileSystem
    from engine.offline.inspection import PartitionFiles, SegmentFile, Verdict

_COLUMNS: Final = ("PARTITION", "BASE-OFFSET", "LAST-OFFSET", "BYTES", "BATCHES", "RECORDS", "MAX-TIMESTAMP", "STATE")
_BATCH_COLUMNS: Final = (
    "POSITION", "BASE-OFFSET", "LAST-OFFSET", "RECORDS", "BYTES", "EPOCH", "CODEC", "MAX-TIMESTAMP", "PRODUCER",
    "KIND", "CRC",
)  # fmt: skip
Work = Callable[["FileSystem", str], Report]


def log_dir_command(function: Callable[..., Work]) -> Callable[..., None]:
    """Make a click command of a function: add the options, lock the log dir, run the returned Work, show its Report."""

    @click.option(
        "--data-dir", "data_dir", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory in log.dirs.",
    )  # fmt: skip
    @output_option
    @click.pass_context
    def run(context: click.Context, /, data_dir: Path, output: str, **arguments: Any) -> None:
        from engine.errors import EngineError, StoreRefused
        from engine.files.filesystem import PosixFileSystem

        try:
            report = function(**arguments)(PosixFileSystem(), str(data_dir.absolute()))
        except (EngineError, StoreRefused, OSError) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


_NAMES: Final = click.argument("names", nargs=-1, metavar="[TOPIC-PARTITION]...")


@click.group("segments")
def command() -> None:
    """List, dump, verify, seal and repair the segments of a log dir on which no broker runs."""


@command.command("list")
@_NAMES
@log_dir_command
def list_segments(names: tuple[str, ...]) -> Work:
    """Show the segments of all partitions, or of NAMES, and whether they are sealed and copied to the remote tier.

    All segments that only the tier has are one line. No segment is read.
    """

    def work(filesystem: FileSystem, path: str) -> Report:
        return _report(filesystem, path, names, reads=False, seals=False)

    return work


@command.command("verify")
@_NAMES
@log_dir_command
def verify_segments(names: tuple[str, ...]) -> Work:
    """Read segments, and compare them with CRCs, footers and aborted indexes. Nothing is changed."""

    def work(filesystem: FileSystem, path: str) -> Report:
        return _report(filesystem, path, names, reads=True, seals=False)

    return work


@command.command("seal")
@_NAMES
@log_dir_command
def seal_segments(names: tuple[str, ...]) -> Work:
    """Read the finished segments, and write missing footers of undamaged ones.

    For a log dir whose footers were lost, or whose broker stopped before it wrote them. A running broker seals full
    segments by itself.
    """

    def work(filesystem: FileSystem, path: str) -> Report:
        return _report(filesystem, path, names, reads=True, seals=True)

    return work


@command.command("dump")
@click.argument("name", metavar="TOPIC-PARTITION")
@click.argument("base_offset", type=click.IntRange(min=0))
@log_dir_command
def dump(name: str, base_offset: int) -> Work:
    """Show the batches of the segment that begins at BASE_OFFSET."""

    def work(filesystem: FileSystem, path: str) -> Report:
        from engine.errors import CorruptMessage
        from engine.offline.inspection import batches, held

        rows: list[tuple[object, ...]] = []
        problems = []
        with held(filesystem, path):
            [partition] = _chosen(filesystem, path, (name,))
            try:
                for at, is_right, marker in batches(filesystem, partition.directory, base_offset):
                    header, crc = at.header, "right" if is_right else "wrong"
                    offsets = header.base_offset, header.next_offset - 1
                    about = header.record_count, header.size_bytes, header.leader_epoch, header.codec_id
                    newest = shown_time(header.max_timestamp_ms)
                    kind = marker.outcome.name.lower() if marker is not None else _kind(header)
                    rows.append((at.position, *offsets, *about, newest, header.producer_id, kind, crc))
                    if not is_right:
                        problems.append(f"the batch at position {at.position} does not match its CRC")
            except CorruptMessage as error:
                problems.append(str(error))
            except FileNotFoundError:
                raise click.ClickException(f"{name} has no segment that begins at {base_offset}") from None
        keys = [column.lower().replace("-", "_") for column in _BATCH_COLUMNS]
        document = [dict(zip(keys, row, strict=True)) for row in rows]
        return Report(document, _BATCH_COLUMNS, rows, problems=problems)

    return work


@command.command("repair")
@click.option("--accept-loss", is_flag=True, help="Repair logs even if that loses acknowledged records.")
@click.option("--drop-index", is_flag=True, help="Drop the index, so that the broker builds it again.")
@log_dir_command
def repair(accept_loss: bool, drop_index: bool) -> Work:
    """Truncate torn tails, remove leftover files, write footers again; with --accept-loss, repair damaged logs."""

    def work(filesystem: FileSystem, path: str) -> Report:
        from engine.offline.repair import repair as repair_log_dir

        outcome = repair_log_dir(filesystem, path, accept_loss=accept_loss, drops_index=drop_index)
        hint = (
            []
            if accept_loss or not outcome.unrepaired
            else ["--accept-loss gives up the missing records, and only those"]
        )
        document = {"done": outcome.done, "left": outcome.unrepaired}
        return Report(document, (), [(line,) for line in outcome.done], remarks=hint, problems=list(outcome.unrepaired))

    return work


def _kind(header: BatchHeader) -> str:
    """Kind of a batch that is no marker."""
    if header.is_control:
        return "control"
    return "transactional" if header.is_transactional else "plain"


def _chosen(filesystem: FileSystem, path: str, names: tuple[str, ...]) -> list[PartitionFiles]:
    from engine.offline.inspection import partitions

    found = {one.directory.rpartition("/")[2]: one for one in partitions(filesystem, path)}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise click.ClickException(f"there is no {', '.join(unknown)} in {path}")
    return [found[name] for name in names or found]


def _report(filesystem: FileSystem, path: str, names: tuple[str, ...], *, reads: bool, seals: bool) -> Report:
    from engine.offline.inspection import aborted_problem, held, seal, segment_files, verify
    from engine.offline.transactions import LogTransactions, transactions_of

    report = Report(document=[], columns=_COLUMNS)
    rows, document = list[tuple[object, ...]](), list[dict[str, object]]()
    with held(filesystem, path):
        for partition in _chosen(filesystem, path, names):
            transactions = transactions_of(filesystem, partition.directory) if reads else LogTransactions([], None)
            if partition.checkpoint.local_start_offset > partition.checkpoint.log_start_offset:
                row, entry = _row_in_tier(partition)
                rows.append(row)
                document.append(entry)
            for segment in segment_files(filesystem, partition.directory):
                verdict = verify(filesystem, partition, segment) if reads else None
                next_base = segment.next_base_offset
                is_to_seal = next_base is not None and segment.footer is None and transactions.is_stable(next_base)
                footer = segment.footer
                if seals and is_to_seal and verdict is not None and verdict.problem is None:
                    footer = seal(filesystem, partition, segment, verdict, transactions)
                _add(report, partition, segment, verdict)
                if verdict is not None and verdict.problem is None:
                    problem = aborted_problem(filesystem, partition, segment, verdict, transactions)
                    if problem is not None:
                        report.problems.append(f"{partition.directory}/{problem}")
                row, entry = _row(partition, segment._replace(footer=footer), verdict)
                rows.append(row)
                document.append(entry)
    report.rows, report.document = rows, document
    return report


def _add(report: Report, partition: PartitionFiles, segment: SegmentFile, verdict: Verdict | None) -> None:
    from engine.logs.segments.segment import segment_name

    problem = segment.footer_problem if verdict is None else verdict.problem
    if problem is None:
        return
    line = f"{partition.directory}/{segment_name(segment.base_offset)}: {problem}"
    if verdict is not None and verdict.is_torn:
        report.remarks.append(f"{line}; behind the last durable record: truncated at the next start")
    else:
        report.problems.append(line)


def _state(partition: PartitionFiles, segment: SegmentFile) -> str:
    if segment.next_base_offset is None:
        return "active"
    if segment.footer is None:
        return "finished"
    return "copied" if segment.next_base_offset <= partition.checkpoint.tiered_to else "sealed"


def _row_in_tier(partition: PartitionFiles) -> tuple[tuple[object, ...], dict[str, object]]:
    """The row of the segments that only the tier has."""
    name, point = partition.directory.rpartition("/")[2], partition.checkpoint
    row = (name, point.log_start_offset, point.local_start_offset - 1, None, None, None, None, "tier")
    return row, {column.lower().replace("-", "_"): cell for column, cell in zip(_COLUMNS, row, strict=True)}


def _row(
    partition: PartitionFiles, segment: SegmentFile, verdict: Verdict | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    name, footer = partition.directory.rpartition("/")[2], segment.footer
    state = _state(partition, segment)
    known = verdict.tally if verdict is not None else footer
    counts = (None,) * 3 if known is None else (known.last_offset, known.batches, known.records)
    newest_ms = None if known is None else known.max_timestamp_ms
    last_offset, batches, records = counts
    row = (name, segment.base_offset, last_offset, segment.size_bytes, batches, records, shown_time(newest_ms), state)
    entry = {column.lower().replace("-", "_"): cell for column, cell in zip(_COLUMNS, row, strict=True)}
    digest = None if footer is None else footer.digest.hex()
    return row, {**entry, "max_timestamp": newest_ms, "generation": footer and footer.generation, "digest": digest}
