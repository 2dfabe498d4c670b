"""The checks of a suite's author: exact, so that each needs one reply that passes and one that fails."""

from typing import Any

import pytest

from gates.contracts.errors import SuiteError
from gates.detect.checks import find_failed_checks


@pytest.mark.parametrize(
    ("text", "checks", "failed"),
    [
        ('It is PARIS, of course.', {'contains': ['paris']}, []),  # any case
        ('Tunga and Bhadra.', {'contains': ['Tunga', 'Bhadra']}, []),  # all of them
        ('Tunga alone.', {'contains': ['Tunga', 'Bhadra']}, ['contains']),  # one is missing
        ('', {'contains': ['Paris']}, ['contains']),  # nothing was said
        ('Call 080-2345 now.', {'regex': '[0-9]{3}-[0-9]{4}'}, []),  # found inside
        ('Call me now.', {'regex': '[0-9]{3}-[0-9]{4}'}, ['regex']),  # not found
        (' [1, 2, 3] ', {'json_schema': {'type': 'array', 'items': {'type': 'integer'}}}, []),  # fits the schema
        ('[1, "two"]', {'json_schema': {'type': 'array', 'items': {'type': 'integer'}}}, ['json_schema']),  # another type
        ('```json\n[1]\n```', {'json_schema': {'type': 'array'}}, ['json_schema']),  # a fence is no JSON
        ('One, two, three.', {'json_schema': {}}, ['json_schema']),  # no JSON
        ('Boil water. Wait 6.5 minutes.', {'max_sentences': 2}, []),  # as many as allowed
        ('Boil water. Wait. Peel it!', {'max_sentences': 2}, ['max_sentences']),  # one too many
        ('Boil water. Then wait', {'max_sentences': 2}, []),  # the last has no end
        ('Paris. It is big. It is old.', {'contains': ['Paris'], 'max_sentences': 1}, ['max_sentences']),  # one of two checks fails
    ],
)  # fmt: skip
def test_a_check_fails_for_what_it_is_for(text: str, checks: dict[str, Any], failed: list[str]) -> None:
    assert [finding.kind for finding in find_failed_checks(text, checks)] == failed


def test_a_schema_fetches_nothing() -> None:
    with pytest.raises(SuiteError, match=r"refers to http://example.invalid/x, which is not there"):
        find_failed_checks("1", {"json_schema": {"$ref": "http://example.invalid/x"}})
