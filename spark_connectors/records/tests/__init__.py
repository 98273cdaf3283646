"""Tests of records, compared with the engine's results for the same bytes."""
