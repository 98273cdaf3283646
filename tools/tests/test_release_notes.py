"""Release notes: the section of the changelog for the version of the package."""

from __future__ import annotations

import pytest

import kafkawire
from tools.release_notes import notes
from tools.spark_zip import ROOT

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-01-02\n\n- One [thing](docs/a.md).\n\n## [0.1.0]\n\n- First.\n"
)


def test_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "kafkawire 0.2.0\n\n- One thing.\n"
    assert notes(CHANGELOG, "0.1.0") == "kafkawire 0.1.0\n\n- First.\n"


@pytest.mark.parametrize("version", ["0.3.0", "Unreleased", "0.2"])
def test_a_version_without_notes_is_refused(version: str) -> None:
    with pytest.raises(LookupError, match=f"no section for {version}"):
        notes(CHANGELOG, version)


def test_this_version_has_notes() -> None:
    assert notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), kafkawire.__version__)
