"""Release notes of this version: its section of CHANGELOG.md, as text for `git tag -F -`."""

from __future__ import annotations

import re
import sys

from tools.spark_zip import ROOT, version


def notes(changelog: str, version: str) -> str:
    """The section of a version, with the version in its first line. Raises LookupError if there is none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found.group(1).strip():
        raise LookupError(f"CHANGELOG.md has no section for {version}")
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", found.group(1))  # links lead nowhere in a tag
    return f"kafkawire {version}\n\n{text.strip()}\n"


def main() -> int:
    """Print the notes of the version that the package has."""
    print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
