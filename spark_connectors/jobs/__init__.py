"""What jobs do: tasks make rows of a log rows of a table, in files, and the driver commits what they tell of these.

    digest      which rows these are, whatever their order: a count and a sum
    declared    the columns that somebody says a topic's JSON has
    json_values values as these columns, and which of them cannot be
    table_rows  rows of the kafka source as rows of a table
    files       rows of a table as files of Parquet, and what a commit has to know of each
    tables      what files are committed to, exactly once

All but `files` and `tables` is pure, and nothing knows of Spark.
"""
