"""Compiles the modules of the request path with mypyc, in a copy of the packages: the same sources, with less CPU.

    python tools/compile.py DIRECTORY

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

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("kafkawire", "engine", "coordinator", "tiering", "spark_connectors")
BESIDE: Final = ("pyproject.toml", "conftest.py", "README.md")  # other files that their tests need
MODULES: Final = (
    "engine/stats.py",
    *(f"engine/batches/{name}.py" for name in ("batch", "produce_checks")),
    *(f"engine/commit/{name}.py" for name in ("appends", "group_committer", "syncer", "writer")),
    *(f"engine/logs/{name}.py" for name in ("chunk", "epochs", "footer", "log", "position", "recently_used")),
    *(f"engine/logs/{name}.py" for name in ("roll_policy", "segment", "sparse_index")),
    *(f"engine/partitions/{name}.py" for name in ("availability", "follower", "intake", "joining", "kept", "leader")),
    *(f"engine/partitions/{name}.py" for name in ("partition", "pending_acks", "replica", "waiters")),
    "engine/replication/progress.py",
    "engine/reading/reader.py",
    *(f"kafkawire/express/{name}.py" for name in ("begun", "fetch", "fetch_reply", "fetch_shape", "heartbeat")),
    *(f"kafkawire/express/{name}.py" for name in ("list_offsets", "list_offsets_shape", "offset_commit")),
    *(f"kafkawire/express/{name}.py" for name in ("produce", "produce_requests", "produce_shape")),
    *(f"kafkawire/fetching/{name}.py" for name in ("reader", "replica_reader", "sessions", "work")),
    *(f"kafkawire/requests/{name}.py" for name in ("dispatch", "metrics", "pending_appends", "pending_reply")),
    *(f"kafkawire/server/{name}.py" for name in ("account", "byte_budget", "hub", "outgoing", "pipeline", "poller")),
    *(f"kafkawire/server/{name}.py" for name in ("session", "transport")),
    *(f"kafkawire/wire/{name}.py" for name in ("connection", "framing")),
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
