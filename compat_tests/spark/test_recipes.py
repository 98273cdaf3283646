"""The blocks of docs/spark-recipes.md, run as they are but for the broker's address and the directories.

And once more with our source in the place of Spark's, as far as there are such places.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from compat_tests.harness.broker import free_port
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.spark.queries import STOCK
from compat_tests.transactions.readers import wait_for_markers

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker
    from compat_tests.spark.queries import Connector

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark-recipes.md"
REFERENCE = DOCUMENT.with_name("spark.md")
BLOCK = re.compile(r"^ *```python\n(.*?)```", re.DOTALL | re.MULTILINE)
SOURCE = re.compile(r'(\.read(?:Stream)?\s*\.format\()"kafka"\)')


def http_url(broker: Broker) -> str:
    """Of Apache Kafka nobody: then what is sealed is fetched as well."""
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
        # What the sink committed is read at once: sooner than a reader sees that its transactions are over.
        code = re.sub(r"^(?=assert copies)", "wait_for_copies()\n", code, flags=re.MULTILINE)
        exec(compile(code, str(DOCUMENT), "exec"), names)
