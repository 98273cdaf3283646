"""Reading topics into Spark: what to read, up to where, and in which pieces is decided on the driver; tasks read.

`options` says what was asked for, `places` looks offsets up, `admission` decides how much a batch of a stream may have,
`ranges` cuts it for tasks, `filters` leaves out of a batch what a query does not want, `planner` puts these together;
`reading` is what a task does.
"""
