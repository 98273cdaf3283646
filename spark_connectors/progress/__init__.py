"""Commits where Spark's queries have come to, for consumer groups that nobody is a member of.

A query keeps its offsets in its checkpoint, where tools that watch lag do not look. They look at what groups have
committed, so that is told them as well: it is for show, and no query ever starts from it.

    options    which cluster, and which group for which query
    positions  what a source's progress says of topics
    groups     what is to be committed for which group, and when: pure
    commits    committing it
    committer  the thread that does
"""
