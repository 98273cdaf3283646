"""Source: reads topics into Spark. The driver plans ranges of offsets, and tasks read them.

`options` are those of the query, `places` looks up offsets, `admission` limits the batches of a stream, `ranges` splits
offsets for tasks, `filters` leaves out rows of a batch query, and `planner` combines these; `reading` is the work of a
task.
"""
