"""Renames of modules, symbols and words over the whole project: code, contracts, documents and mutants."""
