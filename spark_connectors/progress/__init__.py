"""Commits of the offsets of Spark's queries, for consumer groups without members.

A query keeps its offsets in its checkpoint, but tools that show lag read the committed offsets of groups. So the
offsets are committed too. They are for display only: no query starts from them.

    options    the cluster, and the group of each query
    positions  offsets of topics in a source's progress
    groups     the commits of each group, and their times: pure
    commits    the OffsetCommit of a group
    committer  the thread that commits
"""
