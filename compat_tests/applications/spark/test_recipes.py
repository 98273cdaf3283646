"""The blocks of docs/spark-recipes.md, with the test's broker and directories in the place of theirs.

And once more with kafkawire's source in the place of Spark's, where the recipes name it.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from compat_tests.applications.spark.queries import STOCK
from compat_tests.features.transactions.readers import wait_for_markers
from compat_tests.harness.broker import free_port
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import ROOT

if TYPE_CHECKING:
    from compat_tests.applications.spark.queries import Connector
    from compat_tests.harness.broker import Broker

DOCUMENT = ROOT / "docs" / "spark-recipes.md"
REFERENCE = DOCUMENT.with_name("spark.md")
BLOCK = re.compile(r"^ *```python\n(.*?)```", re.DOTALL | re.MULTILINE)
SOURCE = re.compile(r'(\.read(?:Stream)?\s*\.format\()"kafka"\)')


def http_url(broker: Broker) -> str:
    """The HTTP URL of the broker. Apache Kafka gets one without a listener: then sealed segments are fetched as
    well."""
    return broker.http_url if isinstance(broker, Kafkawire) else f"http://127.0.0.1:{free_port()}"


def test_no_block_is_elsewhere() -> None:
    assert not BLOCK.findall(REFERENCE.read_text(encoding="utf-8")), f"it belongs into {DOCUMENT.name}, which is run"


def test_the_blocks_run(connector: Connector, broker: Broker, topic: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    last = max(number for number, block in enumerate(blocks) if SOURCE.search(block))
    assert last >= 6
    names: dict[str, Any] = {"wait_for_copies": lambda: wait_for_markers(broker, f"{topic}-copies")}
    for block in blocks if connector.name == STOCK else blocks[: last + 1]:
        code = SOURCE.sub(rf'\1"{connector.name}")', dedent(block))
        code = code.replace("localhost:9092", broker.bootstrap).replace("/tmp/", f"{tmp_path}/")
        code = code.replace("http://localhost:9644", http_url(broker))
        code = re.sub(
            r'"(events|clicks|counts|copies|restored)"', rf'"{topic}-\1"', code
        )  # each run has topics of its own
        # The recipe reads committed records at once: perhaps before their markers are written.
        code = re.sub(r"^(?=assert copies)", "wait_for_copies()\n", code, flags=re.MULTILINE)
        exec(compile(code, str(DOCUMENT), "exec"), names)
