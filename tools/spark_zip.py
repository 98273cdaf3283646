"""Writes the PySpark connectors as a zip for `--py-files` into a directory: `spark_connectors-<version>.zip`.

The same sources always make the same bytes.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "spark_connectors"
MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip
MODE = 0o644
UNIX = 3  # the system of these file modes
NOT_FROM_A_ZIP = f"{PACKAGE}/default_source.py"  # PySpark only looks for it among installed modules


def version() -> str:
    """The version of the package, without an import of it: no environment is needed for a zip."""
    source = (ROOT / "kafkawire" / "__init__.py").read_text(encoding="utf-8")
    return str(re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0])


def sources() -> list[str]:
    """All modules but tests, and the licence."""
    found = [path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py")]
    names = {path.as_posix() for path in found if "tests" not in path.parts} - {NOT_FROM_A_ZIP}
    return sorted(names | {"LICENSE"})


def write(directory: Path) -> Path:
    """Write the zip. Returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"{PACKAGE}-{version()}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sources():
            entry = zipfile.ZipInfo(name if name.startswith(PACKAGE) else f"{PACKAGE}/{name}", MOMENT)
            entry.create_system, entry.external_attr = UNIX, MODE << 16
            archive.writestr(entry, (ROOT / name).read_bytes(), zipfile.ZIP_DEFLATED)
    return target


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
