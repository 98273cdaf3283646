"""PySpark with its own connectors and with kafkawire's; with KAFKAWIRE_PYSPARK=newest, the newest PySpark."""

import sys

from compat_tests.harness.requirements import IS_NEWEST_SPARK, NEWEST_SPARK

if IS_NEWEST_SPARK:  # before any import of PySpark; in drivers too, whose children get SPARK_HOME
    sys.path.insert(0, str(NEWEST_SPARK))
