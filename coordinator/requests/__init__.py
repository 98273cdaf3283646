"""Requests to the control plane, decided on the newest image: topics, partitions, configs, features, replicas."""
