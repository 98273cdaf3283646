"""Modules of the request path, compiled as extension modules: they behave as their sources."""
