"""The jobs of `kafkawire-spark`: tasks turn rows of a log into files of a table, and the driver commits these files.

    digest      digest of a set of rows, independent of their order: a count and a sum
    declared    the columns that a user declares for a topic's JSON values
    json_values JSON values as these columns, and the values that cannot be decoded
    table_rows  rows of the kafka source as rows of a table
    files       rows of a table as Parquet files, with the facts that a commit needs
    dictionaries the columns of a file that get a dictionary
    tables      the tables that files are committed to, exactly once
    table_names names of tables on a command line
    spans       ranges of offsets of partitions
    topic_log   a topic as a job's driver sees it
    comparison  comparison of rows: a log with its table, or two logs
    audit       check of a topic's bytes
    workers     the workers of a job: processes of this machine, or Spark's executors
    export      a topic into a table, round by round
    report      progress and report of a job
    session     the parts that each run of a job has
    cli         arguments

The modules that convert rows are pure, and only `workers` knows Spark.
"""

import os

# Jobs count and solve no equations. Threads of OpenBLAS would only wait, and would use CPU at the start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
