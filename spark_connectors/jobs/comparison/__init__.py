"""Comparison of rows: a log with its table, or two logs.

search      finds where two sides differ, by sums over smaller and smaller ranges of offsets: pure
in_order    finds where two sequences of rows differ, whatever their offsets are: pure
sides       the tasks that read a log or a table
verify      compares a table with its log
diff        compares two topics
"""
