"""What PySpark finds without being told."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
from spark_connectors import default_source
print(hasattr(default_source, "DefaultSource"))
"""


def test_where_something_is_missing_it_is_no_error() -> None:
    """It would be one for other sources, too."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert 'format("kafkawire") cannot be had here' in done.stderr
    assert "pyarrow" in done.stderr
