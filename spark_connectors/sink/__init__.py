"""Writes rows to topics, each micro-batch of a stream exactly once, each batch job as a whole or not at all.

Tasks make record batches of their rows and stage them; they write to no topic. What they have staged the driver relays
when all of them are done, in one transaction of Kafka's:

    columns   which columns a row's record is made of, and what is none
    routing   which partition each row goes to
    task      rows to staged batches                          in tasks
    staging   small ones travel with the task's message, others are files
    relay     what to ask of brokers in which order: pure     on the driver
    requests  asking it
    commit    all of this once a task set is done
    writers   what Spark calls: shells around `task` and `commit`

That a micro-batch was written is recorded in the same transaction, as an offset that a consumer group has committed:
KIP-447 without a consumer. Whoever commits a micro-batch first fences everybody who may still be at it, and looks at
the record then. So it does not matter who dies when, or how many try: see `relay`.
"""
