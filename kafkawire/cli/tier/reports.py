"""Reports of the `kafkawire tier` commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkawire.cli.common.cluster_command import Report, shown_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkawire.process.restoration import Restored, RestorePlan
    from tiering.gc import Leftover
    from tiering.inventory.audit import Audited
    from tiering.inventory.inventory import Part, PartitionHolding, TopicHolding

_COLUMNS: Final = ("PARTITION", "LOG-START", "END", "SEGMENTS", "BYTES", "DOOMED", "WRITTEN", "BY")


def status(part: Part, owner_generation: int | None, topics: Sequence[TopicHolding]) -> Report:
    """Report of the content of the tier, a row for each partition."""
    rows: list[tuple[object, ...]] = []
    partitions: list[dict[str, Any]] = []
    report = Report({}, _COLUMNS, rows)
    for topic in topics:
        for number, holding in enumerate(topic.partitions):
            name = f"{topic.topic.topic}-{number}"
            if isinstance(holding, str):
                report.problems.append(f"{name}: {holding}")
            else:
                rows.append((name, *_row(holding)))
                partitions.append({"topic": topic.topic.topic, "partition": number, **_document(holding)})
    report.document = {
        "cluster_id": part.cluster_id, "owner_generation": owner_generation, "partitions": partitions,
    }  # fmt: skip
    size_bytes = sum(one["size_bytes"] for one in partitions)
    report.remarks.append(f"cluster {part.cluster_id}: {len(topics)} topics, {size_bytes:,} bytes of records")
    return report


def _row(holding: PartitionHolding) -> tuple[object, ...]:
    manifest = holding.manifest
    written = shown_time(manifest.written_ms) if manifest.version else None
    by = f"epoch {manifest.fence.leader_epoch}" if manifest.version else None
    doomed = len(manifest.doomed)
    return holding.log_start, holding.end, holding.segments, manifest.size_bytes, doomed, written, by


def _document(holding: PartitionHolding) -> dict[str, Any]:
    manifest = holding.manifest
    return {
        "log_start_offset": holding.log_start,
        "end_offset": holding.end,
        "segments": holding.segments,
        "size_bytes": manifest.size_bytes,
        "doomed": len(manifest.doomed),
        "manifest_version": manifest.version,
        "written_ms": manifest.written_ms,
        "owner_generation": manifest.fence.owner_generation,
        "leader_epoch": manifest.fence.leader_epoch,
    }


def verified(audited: Audited, *, reads: bool) -> Report:
    """Report of the check of all copied segments."""
    document = {"objects": audited.objects, "read_bytes": audited.size_bytes, "problems": sorted(audited.problems)}
    how = (
        f"{audited.size_bytes:,} bytes of them were read"
        if reads
        else "by the sizes and checksums of the store; --read reads the objects"
    )
    report = Report(document, problems=sorted(audited.problems))
    report.remarks.append(f"{audited.objects} objects; {how}")
    return report


def collected(found: Sequence[Leftover], deleted: int | None) -> Report:
    """Report of the garbage collection. `deleted` is the number of deleted objects; None in a dry run."""
    document = {
        "leftovers": [
            {"key": one.found.key, "size_bytes": one.found.size_bytes, "reason": one.reason} for one in found
        ],
        "deleted": deleted,
    }
    rows = [(one.found.key, one.found.size_bytes, shown_time(one.found.modified_ms), one.reason) for one in found]
    report = Report(document, ("KEY", "BYTES", "MODIFIED", "WHY") if rows else (), rows)
    size_bytes = sum(one.found.size_bytes for one in found)
    result = "nothing was deleted" if deleted is None else f"{deleted} were deleted"
    report.remarks.append(f"{len(found)} leftovers of {size_bytes:,} bytes; {result}")
    return report


def restored(plan: RestorePlan, outcome: Restored | None) -> Report:
    """Report of a restore; `outcome` is None in a dry run."""
    report = status(plan.part, plan.owner_generation, plan.topics)
    report.problems += [f"{one}: its topic is not restored" for one in plan.problems]
    if outcome is None:
        report.remarks.append("nothing was changed")
        return report
    clamped = f", {outcome.clamped} of them moved to where records are" if outcome.clamped else ""
    report.remarks.append(f"restored; {outcome.offsets} committed offsets{clamped}; start the broker now")
    report.problems += outcome.problems
    return report
