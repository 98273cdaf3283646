"""Makes `format("kafkawire")` known to a session, and finds out whether its workers have what it takes.

Where the package was imported from a zip (`--py-files`, `addPyFile`) its classes travel by value: the processes that
plan a stream do not look into zips, although tasks do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
PACKAGE: Final = "spark_connectors"
NEEDED: Final = ("pyarrow", "numpy", "crc32c")


class WorkersLack(Exception):
    """Python's workers cannot import what the connectors are made of."""


def register(spark: Any, *, is_by_value: bool | None = None) -> None:
    """Of a session, once. `is_by_value` says whether the package's code travels with each query, and is found out else:
    for executors that do not have it, even if the driver has it in a directory.

    Lets filters be pushed down to data sources written in Python, as ours makes use of them.
    """
    from pyspark import cloudpickle

    from spark_connectors.data_source import Kafkawire

    if is_by_value or (is_by_value is None and not Path(__file__).exists()):
        cloudpickle.register_pickle_by_value(sys.modules[PACKAGE])
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(Kafkawire)


def check(spark: Any) -> None:
    """Raises WorkersLack, by the look of one worker: in the middle of a query is late to learn of it."""
    from pyspark import cloudpickle
    from pyspark.sql.functions import udf

    travels = PACKAGE in cloudpickle.list_registry_pickle_by_value()
    names = NEEDED if travels else (*NEEDED, PACKAGE)

    def lacking(_: object) -> str:
        """In the worker, which has nothing of this module."""
        import importlib

        problems = []
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError as error:
                problems.append(f"{name}: {error}")
        return "; ".join(problems)

    ask = udf(lacking, "string", useArrow=False)  # which takes a worker that has nothing
    (row,) = spark.range(1).select(ask("id").alias("problems")).collect()
    if row.problems:
        raise WorkersLack(f"Python's workers lack what the connectors need: {row.problems}")
