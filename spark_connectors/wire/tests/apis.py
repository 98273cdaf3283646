"""All APIs of this client, and Hypothesis strategies for their messages."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from hypothesis import strategies as st

from spark_connectors.wire import messages
from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import CompactArray, CompactBytes, CompactText, Fixed, Kind, Struct, Uuid

ELEMENTS_MAX = 4  # of one array


def every_api() -> list[Api[Any, Any]]:
    """The API of each module of wire.messages."""
    modules = [
        importlib.import_module(f"{messages.__name__}.{one.name}") for one in pkgutil.iter_modules(messages.__path__)
    ]
    return [next(value for value in vars(module).values() if isinstance(value, Api)) for module in modules]


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Values that a kind can write."""
    match kind:
        case Fixed(form):
            return _numbers(form[-1])
        case CompactText(is_nullable):
            return _perhaps(st.text(max_size=200), is_nullable)
        case CompactBytes(is_nullable):
            return _perhaps(st.binary(max_size=200), is_nullable)
        case Uuid():
            return st.binary(min_size=16, max_size=16)
        case CompactArray(element, is_nullable):
            return _perhaps(st.lists(values_of(element), max_size=ELEMENTS_MAX).map(tuple), is_nullable)
        case Struct(made, fields):
            return st.fixed_dictionaries({name: values_of(one) for name, one in fields}).map(
                lambda found: made(**found)
            )
    raise AssertionError(f"no strategy for {kind}")


def _numbers(form: str) -> st.SearchStrategy[Any]:
    if form == "?":
        return st.booleans()
    bits = {"b": 8, "h": 16, "i": 32, "q": 64}[form]
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _perhaps(values: st.SearchStrategy[Any], is_nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values if is_nullable else values
