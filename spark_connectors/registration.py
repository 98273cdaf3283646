"""Registration of `format("kafkawire")` in a session, and a check of the packages that its workers have.

If the package was imported from a zip (`--py-files`, `addPyFile`), its classes are pickled by value: the processes that
plan a stream cannot import from zips, although tasks can.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
PACKAGE: Final = "spark_connectors"
NEEDED: Final = ("pyarrow", "numpy", "crc32c")


class WorkersLack(Exception):
    """Python workers cannot import a package that the connectors need."""


def register(spark: Any, *, is_by_value: bool | None = None) -> None:
    """Register the format in a session, once. `is_by_value`: whether the package's code is sent with each query, for
    executors without the package; None: if it was imported from a zip.

    Also allows Spark to push filters down to Python data sources.
    """
    from pyspark import cloudpickle

    from spark_connectors.data_source import Kafkawire

    spark.conf.set(PUSHDOWN, "true")
    if is_by_value or (is_by_value is None and not Path(__file__).exists()):
        cloudpickle.register_pickle_by_value(sys.modules[PACKAGE])
    elif _has_format(spark, Kafkawire.name()):
        return
    spark.dataSource.register(Kafkawire)


def _has_format(spark: Any, name: str) -> bool:
    """Whether a session finds the format by itself, in the wheel that its Python has. If the format were registered
    too, Spark would warn at each query that one replaces the other. A session of Spark Connect does not say."""
    session = getattr(spark, "_jsparkSession", None)  # as `spark.dataSource.register` takes it
    return session is not None and session.sessionState().dataSourceManager().dataSourceExists(name)


def check(spark: Any) -> None:
    """Check one worker before a query fails. Raises WorkersLack."""
    from pyspark import cloudpickle
    from pyspark.sql.functions import udf

    travels = PACKAGE in cloudpickle.list_registry_pickle_by_value()
    names = NEEDED if travels else (*NEEDED, PACKAGE)

    def lacking(_: object) -> str:
        """Runs in the worker, which does not have this module."""
        import importlib
        import sys

        problems = []
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError as error:
                problems.append(f"{name}: {error}")
        return f"{'; '.join(problems)} (Python: {sys.executable})" if problems else ""

    ask = udf(lacking, "string", useArrow=False)  # without Arrow, which would need pyarrow in the worker
    (row,) = spark.range(1).select(ask("id").alias("problems")).collect()
    if row.problems:
        text = f"the Python workers lack requirements of the connectors: {row.problems}"
        raise WorkersLack(f"{text}. PYSPARK_PYTHON chooses the Python of the workers")
