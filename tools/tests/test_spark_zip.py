"""The zip of the PySpark connectors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from tools.spark_zip import version, write

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "import sys; sys.path.insert(0, sys.argv[1]); import spark_connectors as it; print(it.__file__, it.register)"


def test_the_zip_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    assert first.name == f"spark_connectors-{version()}.zip"
    assert first.read_bytes() == second.read_bytes()


def test_the_zip_has_the_package_without_its_tests(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(tmp_path)) as archive:
        names = archive.namelist()
    assert {"spark_connectors/__init__.py", "spark_connectors/wire/messages/fetch.py"} <= set(names)
    assert all(name.startswith("spark_connectors/") and "/tests/" not in name for name in names)


def test_the_package_is_imported_from_the_zip(tmp_path: Path) -> None:
    found = write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WHERE, str(found)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{found}/spark_connectors/__init__.py <function register")
