"""Compiles the modules of the request path with mypyc, in a copy of the packages: the same sources, with less CPU.

    python -m tools.compile DIRECTORY

DIRECTORY becomes a copy of the packages in which the modules below are extension modules; a process with it on
PYTHONPATH runs these, all others run the sources. Needs a C compiler, setuptools and mypy; takes two minutes. Decision
22 says how much is gained, and which constructs these modules must not use.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.packages import PACKAGES

ROOT: Final = Path(__file__).resolve().parent.parent
BESIDE: Final = ("pyproject.toml", "conftest.py", "README.md")  # other files that their tests need
MODULES: Final = (
    "engine/batches/batch.py",
    "engine/batches/produce_checks.py",
    "engine/commit/appends.py",
    "engine/commit/group_committer.py",
    "engine/commit/syncer.py",
    "engine/commit/writer.py",
    "engine/logs/log.py",
    "engine/logs/recently_used.py",
    "engine/logs/recovery/epochs.py",
    "engine/logs/segments/chunk.py",
    "engine/logs/segments/footer.py",
    "engine/logs/segments/position.py",
    "engine/logs/segments/roll_policy.py",
    "engine/logs/segments/segment.py",
    "engine/logs/segments/sparse_index.py",
    "engine/partitions/append_at_offset.py",
    "engine/partitions/append_queue.py",
    "engine/partitions/commits.py",
    "engine/partitions/follower.py",
    "engine/partitions/leader.py",
    "engine/partitions/led_followers.py",
    "engine/partitions/partition.py",
    "engine/partitions/pending_acks.py",
    "engine/partitions/state.py",
    "engine/partitions/txn_verification.py",
    "engine/partitions/waiters.py",
    "engine/reading/reader.py",
    "engine/replication/progress.py",
    "engine/stats.py",
    "kafkawire/fast_path/started_request.py",
    "kafkawire/fast_path/fetch.py",
    "kafkawire/fast_path/fetch_reply.py",
    "kafkawire/fast_path/fetch_shape.py",
    "kafkawire/fast_path/list_offsets.py",
    "kafkawire/fast_path/list_offsets_shape.py",
    "kafkawire/fast_path/offset_commit.py",
    "kafkawire/fast_path/produce.py",
    "kafkawire/fast_path/produce_requests.py",
    "kafkawire/fast_path/produce_shape.py",
    "kafkawire/fetching/reader.py",
    "kafkawire/fetching/replica_reader.py",
    "kafkawire/fetching/sessions.py",
    "kafkawire/fetching/work.py",
    "kafkawire/requests/dispatch.py",
    "kafkawire/requests/metrics.py",
    "kafkawire/handlers/common/pending_appends.py",
    "kafkawire/requests/pending_reply.py",
    "kafkawire/server/account.py",
    "kafkawire/server/byte_budget.py",
    "kafkawire/server/hub.py",
    "kafkawire/server/outgoing.py",
    "kafkawire/server/pipeline.py",
    "kafkawire/server/poller.py",
    "kafkawire/server/session.py",
    "kafkawire/server/transport.py",
    "kafkawire/wire/connection.py",
    "kafkawire/wire/framing.py",
)

# In a process of its own, and in the copy: both tools look around where they are started.
_SETUP: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(["--config-file", "mypy.ini", *sys.argv[1:]], opt_level="3")
setup(name="kafkawire-compiled", packages=[], ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace"])
"""
_MYPY: Final = "[mypy]\nignore_missing_imports = True\n"  # types are checked elsewhere, and strictly


def copy_to(directory: Path) -> None:
    """Copy the packages to a directory, and remove its content first."""
    shutil.rmtree(directory, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in BESIDE:
        shutil.copy(ROOT / name, directory / name)


def compile_in(directory: Path) -> None:
    """Leaves extension modules beside the modules they were made of."""
    project = directory / "pyproject.toml"
    hidden = project.rename(directory / "pyproject.hidden")  # setuptools would take it for its own
    (directory / "mypy.ini").write_text(_MYPY)
    try:
        subprocess.run([sys.executable, "-c", _SETUP, *MODULES], cwd=directory, check=True)
    finally:
        hidden.rename(project)
    (directory / "mypy.ini").unlink()
    shutil.rmtree(directory / "build")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles the modules that every request passes, in a copy.")
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory.resolve()
    copy_to(directory)
    compile_in(directory)


if __name__ == "__main__":
    main()
