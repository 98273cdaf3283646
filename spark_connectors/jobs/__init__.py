"""What jobs do: tasks make rows of a log rows of a table, in files, and the driver commits what they tell of these.

    digest      which rows these are, whatever their order: a count and a sum
    declared    the columns that somebody says a topic's JSON has
    json_values values as these columns, and which of them cannot be
    table_rows  rows of the kafka source as rows of a table
    files       rows of a table as files of Parquet, and what a commit has to know of each
    dictionaries which columns of them have one
    tables      what files are committed to, exactly once
    table_names what tables are called on a command line
    spans       offsets of partitions, as stretches of them
    topic_log   a topic as a job's driver sees it
    comparison  what has the same rows: a log and a table of it, or two logs
    audit       whether a topic's bytes are in order
    workers     who does the tasks of a job: processes of this machine, or executors of Spark's
    export      a topic into a table, round by round
    report      what a job tells of itself
    session     what one run has, whichever job it is
    cli         arguments

What makes rows of rows is pure, and only `workers` knows of Spark.
"""

import os

# Jobs count, and solve no equations: threads of numpy's for that would wait for nothing, and busily at first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
