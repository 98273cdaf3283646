"""In a wheel the module `pyspark_kafkawire`: PySpark looks into every installed module with such a name, and so finds
`format("kafkawire")` where nobody registers it.

It looks into all of them when a session first uses any source in Python. So one that cannot be imported would be an
error for the others, too, for instance beside a broker, whose environment has no pyarrow.
"""

import logging

try:
    from spark_connectors.data_source import Kafkawire as DefaultSource
except Exception as error:  # packages that do not fit each other raise whatever they like: a ValueError of numpy's, say
    logging.getLogger(__name__).warning('format("kafkawire") cannot be had here: %s', error)
else:
    __all__ = ["DefaultSource"]
