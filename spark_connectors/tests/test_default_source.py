"""Discovery of the format by PySpark without a registration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
from spark_connectors import default_source
print(hasattr(default_source, "DefaultSource"))
"""


@pytest.mark.parametrize("error", ["ImportError", "ValueError"])
def test_missing_or_broken_dependency_prints_a_reason_and_raises_nothing(tmp_path: Path, error: str) -> None:
    """An error would break other sources too."""
    (tmp_path / "pyarrow.py").write_text(f"raise {error}('pyarrow is of another time')")
    look = f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + LOOK
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert 'format("kafkawire") cannot be had here: pyarrow is of another time' in done.stderr
