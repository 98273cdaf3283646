"""The table of error codes is complete and agrees with Kafka's names and numbers."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from coordinator import errors as control
from engine import errors as log
from kafkawire.requests.errors import CODE_BY_CLASS, NEVER_SENT, ErrorCode, error_code_of


def errors_of(module: ModuleType, base: type[Exception]) -> set[type[Exception]]:
    return {
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, base) and found is not base and found.__module__ == module.__name__
    }


BASES = {control.GroupError, control.TransactionError}
DOMAIN_ERRORS = (errors_of(log, log.EngineError) | errors_of(control, control.CoordinatorError)) - BASES


def test_codes_are_kafkas() -> None:
    assert {code.name.lower(): code.value for code in ErrorCode} == {code.name: int(code) for code in KioErrorCode}


def test_every_domain_error_has_a_code_or_never_meets_a_client() -> None:
    assert set(CODE_BY_CLASS) | NEVER_SENT == DOMAIN_ERRORS
    assert not set(CODE_BY_CLASS) & NEVER_SENT


@pytest.mark.parametrize(("error", "code"), [(log.CorruptMessage("x"), 2), (control.TopicExists("t"), 36)])
def test_a_domain_error_is_translated(error: Exception, code: int) -> None:
    assert error_code_of(error) == code


def test_unexpected_exception_becomes_unknown_server_error() -> None:
    assert error_code_of(ZeroDivisionError()) is ErrorCode.UNKNOWN_SERVER_ERROR
