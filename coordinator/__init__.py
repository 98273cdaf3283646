"""The control plane of a broker, and the group and transaction coordinators.

`metadata`, `controller`, `requests`, `membership` and `transfer` are the control plane, put together by
`cluster_manager`; `metadata_store` is its store. `groups` and `transactions` are coordinators on `shards`, whose state
is in `state`. Nothing here knows a wire message or a log. Other packages see `coordinator.api`, `coordinator.ports` and
`coordinator.errors` only.
"""
