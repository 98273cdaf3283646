"""Writes the PySpark connectors as a zip for `--py-files` into a directory: `spark_connectors-<version>.zip`.

The same sources make the same bytes, whoever writes it, and when.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "spark_connectors"
MOMENT = (1980, 1, 1, 0, 0, 0)  # the first one that a zip can tell
MODE = 0o644
UNIX = 3  # whose modes these are
NOT_FROM_A_ZIP = f"{PACKAGE}/default_source.py"  # what only installed modules are looked into for


def version() -> str:
    """The version of the package, without an import of it: no environment is needed for a zip."""
    source = (ROOT / "kafkawire" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]


def sources() -> list[str]:
    """All modules but tests, and the licence they are given away under."""
    found = [path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py")]
    names = {path.as_posix() for path in found if "tests" not in path.parts} - {NOT_FROM_A_ZIP}
    return sorted(names | {"LICENSE"})


def write(directory: Path) -> Path:
    """Returns where it is."""
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
