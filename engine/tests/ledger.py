"""How a test that takes long leaves words for docs/ledger.md: `tools/suite.py long` names a file for them."""

from __future__ import annotations

import os

SUMMARY = "KAFKAWIRE_LEDGER_SUMMARY"  # as in tools/suite.py, which runs without what it tests


def note_for_ledger(text: str) -> None:
    """Nothing, when the suite does not ask."""
    path = os.environ.get(SUMMARY)
    if path:
        with open(path, "a", encoding="utf-8") as summary:
            summary.write(text)
