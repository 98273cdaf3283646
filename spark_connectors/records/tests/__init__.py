"""Tests of records, held against what the engine makes of the same bytes."""
