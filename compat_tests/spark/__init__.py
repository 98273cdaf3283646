"""PySpark with its own connectors and with ours; with KAFKAWIRE_PYSPARK=newest it is the newest one."""

import sys

from compat_tests.harness.requirements import IS_NEWEST_SPARK, NEWEST_SPARK

if IS_NEWEST_SPARK:  # before anything imports PySpark; in drivers too, and what those start has Spark's home
    sys.path.insert(0, str(NEWEST_SPARK))
