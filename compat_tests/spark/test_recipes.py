"""The blocks of docs/spark.md, run as they are but for the broker's address and the directories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compat_tests.harness.broker import Broker

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_blocks_run(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    assert spark  # which the first block finds
    blocks = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    names: dict[str, Any] = {}
    for block in blocks:
        code = block.replace("localhost:9092", broker.bootstrap).replace("/tmp/", f"{tmp_path}/")
        exec(compile(code, str(DOCUMENT), "exec"), names)
