"""What has the same rows: a log and a table of it, or two logs.

search      where two sides differ, by sums over fewer and fewer offsets: pure
in_order    where two sequences of rows differ, whatever their offsets are: pure
sides       what tasks read of a log, or of a table
verify      whether a table has the rows of a log
diff        whether two topics have the same rows
"""
