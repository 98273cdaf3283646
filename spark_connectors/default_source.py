"""The module `pyspark_kafkawire` of a wheel: PySpark finds it by its name, so `format("kafkawire")` needs no
registration.

PySpark imports all modules with such names when a session first uses any Python source. A module that fails to import
would break other sources too, for instance beside a broker, whose environment has no pyarrow.
"""

import logging

try:
    from spark_connectors.data_source import Kafkawire as DefaultSource
except Exception as error:  # packages that do not fit each other raise any error, for instance a ValueError of numpy's
    logging.getLogger(__name__).warning('format("kafkawire") cannot be had here: %s', error)
else:
    __all__ = ["DefaultSource"]
