"""PySpark connectors for Kafka clusters: `register(spark)`, then `format("kafkawire")`.

They go where nothing else of this project is installed, into drivers and executors, and import nothing of it: Python's
library, pyarrow, numpy and crc32c are all they need.
"""

from spark_connectors.registration import WorkersLack, check, register

__all__ = ["WorkersLack", "check", "register"]
