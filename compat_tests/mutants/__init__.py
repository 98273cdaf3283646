"""Mutants, one patch each: the long tests must catch every one of them."""
