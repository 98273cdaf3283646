"""Shared parts of the benchmarks: contenders, loads, requests, facts about the machine, result files."""
