"""Sink: writes rows to topics, each micro-batch of a stream exactly once, each batch job as a whole or not at all.

Tasks make record batches of their rows and stage them; they write to no topic. When all tasks are done, the driver
relays the staged batches in one transaction of Kafka:

    columns   the columns of a row that make its record
    routing   the partition of each row
    task      rows to staged batches                          in tasks
    staging   small batches go with the task's message, others are files
    relay     the order of requests to brokers: pure          on the driver
    requests  these requests
    commit    all of this after a set of tasks is done
    writers   interface of Spark: shells around `task` and `commit`

The same transaction records that the micro-batch was written, as an offset commit of a consumer group: KIP-447 without
a consumer. A commit of a micro-batch first fences all earlier attempts, and then reads the record. So crashes, and
several attempts at once, do no harm: see `relay`.
"""
