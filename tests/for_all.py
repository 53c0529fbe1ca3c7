"""One test of many cheap cases: a case of pytest costs milliseconds, even if the check itself costs microseconds."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_all(cases: Iterable[Any], name: Callable[[Any], object] = str) -> Callable[[Callable[[Any], None]], Any]:
    """Make one test of a check of one case; it reports every case that fails, by name.

    The check has no fixtures and skips no case: a skip is a failure. There must be a case.

    >>> @for_all([1, 2, 3], name="number {}".format)
    ... def test_numbers_are_small(number):
    ...     assert number < 2, f"{number} is large"
    >>> test_numbers_are_small()
    Traceback (most recent call last):
    ...
    AssertionError: 2 of 3 cases fail
    number 2: 2 is large
    number 3: 3 is large
    """
    listed = list(cases)

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        def test() -> None:
            failures = list[str]()
            for case in listed:
                try:
                    check(case)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                    failures.append(f"{name(case)}: {words}")
            assert listed, "no cases"
            if failures:
                raise AssertionError("\n".join([f"{len(failures)} of {len(listed)} cases fail", *failures]))

        test.__name__, test.__qualname__, test.__module__ = check.__name__, check.__qualname__, check.__module__
        test.__doc__ = check.__doc__
        return test

    return decorate
