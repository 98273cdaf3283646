"""The files of a log with transactions, as kafka-dump-log reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from compat_tests.clients.java.commands import TOOLS
from compat_tests.harness.tools import java_tool
from engine.api import Outcome
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import running
from testkit.transactional_logs import DIRECTORY, SMALL, append, end, opened

if TYPE_CHECKING:
    from pathlib import Path

COORDINATOR_EPOCH = 3


async def filled() -> dict[str, bytes]:
    """The files of a partition by name; its last transaction is open."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, SMALL)
        for number in range(3):
            for producer_id in (7, 8):
                await append(log, b"record", (producer_id, 0, number))
            await end(log, 7, Outcome.ABORT, coordinator_epoch=COORDINATOR_EPOCH)
            await end(log, 8, Outcome.COMMIT, coordinator_epoch=COORDINATOR_EPOCH)
        await append(log, b"open", (7, 0, 3))
        await store.close()
    prefix = f"{DIRECTORY}/"
    return {path.removeprefix(prefix): content for path, content in filesystem.files().items() if prefix in path}


def test_segments_indexes_and_snapshots_are_kafkas(tmp_path: Path) -> None:
    for name, content in trio.run(filled).items():
        (tmp_path / name).write_bytes(content)
    suffixes = (".log", ".txnindex", ".snapshot")
    files = ",".join(str(path) for path in sorted(tmp_path.iterdir()) if path.suffix in suffixes)
    shown = java_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files)
    assert shown.count(f"endTxnMarker: ABORT coordinatorEpoch: {COORDINATOR_EPOCH}") == 3
    assert shown.count(f"endTxnMarker: COMMIT coordinatorEpoch: {COORDINATOR_EPOCH}") == 3
    assert shown.count("isTransactional: true isControl: false") == 7
    assert shown.count("isTransactional: true isControl: true") == 6
    assert "isvalid: false" not in shown
    assert "version: 0 producerId: 7 firstOffset: 0 lastOffset: 2 lastStableOffset: 1" in shown
    assert (
        f"producerId: 7 producerEpoch: 0 coordinatorEpoch: {COORDINATOR_EPOCH} currentTxnFirstOffset: Optional" in shown
    )
