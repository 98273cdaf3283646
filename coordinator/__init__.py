"""The control plane: metadata, cluster, groups and transactions.

It knows no wire message and no log; other packages see `coordinator.api` and `coordinator.errors` only.
"""
