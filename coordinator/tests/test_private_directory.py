"""Directories of the control plane are for the broker's own user alone, under any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coordinator.metadata_store.embedded import open_embedded
from coordinator.private_directory import make_private
from coordinator.state.leveldb_cache import open_state_cache
from coordinator.testing.fakes import run_inline


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("existing", [None, 0o777, 0o755, 0o750, 0o700])
async def test_directories_of_metadata_and_of_the_view(tmp_path: Path, existing: int | None) -> None:
    metadata, view = tmp_path / "data" / "metadata", tmp_path / "data" / "offsets-view"
    if existing is not None:
        for directory in (metadata, view):
            directory.mkdir(existing, parents=True)
    await (await open_embedded(metadata, run_inline)).close()
    await (await open_state_cache(view, run_inline)).close()
    assert (mode(metadata), mode(view)) == (0o700, 0o700)
    assert mode(tmp_path / "data") == 0o777, "a log dir is the operator's"


async def test_a_damaged_cache_is_created_again_as_a_private_directory(tmp_path: Path) -> None:
    view = tmp_path / "offsets-view"
    view.mkdir()
    (view / "CURRENT").write_bytes(b"nonsense")
    await (await open_state_cache(view, run_inline)).close()
    assert mode(view) == 0o700


def test_a_directory_of_another_user_is_used_and_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, wanted: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    (tmp_path / "metadata").mkdir(0o770)
    with capture_logs() as logged:
        make_private(tmp_path / "metadata")
    assert [(one["log_level"], one["mode"]) for one in logged] == [("warning", "0770")]
