"""What jobs do: in tasks rows of a log become rows of a table, in files, and facts about them go to the driver, which
commits them.

    digest      which rows these are, whatever their order: a count and a sum
    declared    the columns that somebody says a topic's JSON has
    json_values values as these columns, and which of them cannot be
    table_rows  rows of the kafka source as rows of a table
    files       rows of a table as files of Parquet, and what a commit has to know of each
    tables      what files are committed to, exactly once

All but `files` and `tables` is pure, and nothing knows of Spark.
"""
