"""Summaries of long tests for docs/ledger.md: `tools/suite.py long` names a file for them."""

from __future__ import annotations

import os

SUMMARY = "KAFKAWIRE_LEDGER_SUMMARY"  # as in tools/suite.py, which does not import the tested packages


def note_for_ledger(text: str) -> None:
    """Append a summary to the file of the suite; does nothing outside the suite."""
    path = os.environ.get(SUMMARY)
    if path:
        with open(path, "a", encoding="utf-8") as summary:
            summary.write(text)
