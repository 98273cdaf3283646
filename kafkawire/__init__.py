"""Kafka's binary protocol on trio, in front of the segment engine.

Requests come in through `server`, are decoded by `wire` and `messages`, and answered by one module per API in
`handlers`. This package neither stores records nor elects leaders: `engine` and `coordinator` do.
"""

__version__ = "0.1.0"
