"""The steps of `sesame where --steps`."""

import pytest

from orchestration.cli.verbs.where import _parse_steps
from preprocessing.errors import BadInput


@pytest.mark.parametrize("given", ["9" * 5_000 + ":", ":" + "9" * 5_000, "3", "a:b"])
def test_steps_that_are_not_numbers_are_refused_in_a_line(given: str) -> None:
    with pytest.raises(BadInput, match=r"^invalid --steps: got .{1,70}, expected A:B; write it like 1000:1999$"):
        _parse_steps(given, 10)
