"""PySpark connectors for Kafka clusters: `register(spark)`, then `format("kafkawire")`.

The connectors are installed in drivers and executors, without the rest of this project, and import nothing of it. They
need Python's library, pyarrow, numpy and crc32c only.
"""

from spark_connectors.registration import WorkersLack, check, register

__all__ = ["WorkersLack", "check", "register"]
