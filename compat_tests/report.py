"""Runs the tests of the clients named on the command line, or of all, and records the results in results.json.

docs/compatibility.md is made of the record (tools/generate_compatibility_doc.py): it says which tests were run, on
which day and in which versions, and claims nothing else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path

from compat_tests.harness.requirements import ROOT
from compat_tests.harness.versions import COMPAT_TESTS, Client, clients
from tools.suite import outcome

RESULTS = COMPAT_TESTS / "results.json"

Outcomes = dict[str, dict[str, Counter[str]]]  # file, age of the client, outcome: how many


def run(test: str) -> Outcomes:
    """Run one entry of a client's `tests`, and return the results."""
    path, _, word = test.partition(":")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        chosen = [f"compat_tests/{path}", *(["-k", word] if word else [])]
        subprocess.run([sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *chosen], cwd=ROOT, check=False)
        return outcomes(report, word)


def outcomes(report: Path, word: str) -> Outcomes:
    """The results of a client in pytest's JUnit report; of tests for several clients, those with its name."""
    found: Outcomes = defaultdict(lambda: defaultdict(Counter))
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name", "")
        if word and f"[{word}" not in name:
            continue
        file = "/".join(case.get("classname", "").split(".")[1:]) + ".py"
        age = "oldest" if "[oldest" in name else "newest"
        found[file][age][outcome(case)] += 1
    return found


def check_version(client: Client) -> None:
    """Check the version of a client that is not installed by this project. All other versions are pinned in the
    table."""
    if client.shown_by:
        said = subprocess.run(client.shown_by, capture_output=True, text=True, timeout=60, check=True).stdout
        assert re.search(rf"\b{re.escape(client.newest)}\b", said), f"{client.name} is not {client.newest}: {said}"


def record(client: Client) -> dict[str, object]:
    check_version(client)
    files: Outcomes = {}
    for test in client.tests:
        files |= run(test)
    versions = {"newest": client.newest} | ({"oldest": client.oldest} if client.oldest else {})
    return {"date": time.strftime("%Y-%m-%d"), **versions, "files": files}


def main() -> None:
    known = {client.name: client for client in clients()}
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in sys.argv[1:] or known:
        results[name] = record(known[name])
        ordered = {each: results[each] for each in known if each in results}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
