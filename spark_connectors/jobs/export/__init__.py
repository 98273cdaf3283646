"""`kafkawire-spark export`: appends rows of a topic to a table, each once, even if runs are killed.

    wanted      the offsets to export, from the progress of the job on
    rounds      the next offsets and their tasks, so that files get their size: pure
    tasks       a task: writes rows to files
    driver      rounds and commits, one after the other

Only the table holds the progress: files and progress are committed together. Dead letters are committed first, to a
table of their own with progress of its own. So no row and no dead letter is there twice, whatever a run plans after a
crash.
"""
