"""The conformance vectors. What is not covered yet is counted, so that it can not grow unnoticed."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from time import perf_counter
from typing import Any

import pytest

from conformance import vectors
from detent.model.errors import InvalidInput, NotAvailable
from detent.when.rule import cron_rule, fires


def is_available(expression: str) -> bool:
    """Plain five-field cron and nicknames, without the characters of the larger dialect."""
    if expression.startswith("@"):
        return True
    words = re.sub("jul", "7", expression, flags=re.IGNORECASE).split()
    return len(words) == 5 and not any(re.search(r"[0-9]W|L|#|\bH\b", word) for word in words)


def mismatches(case: dict[str, Any], gap: str, fold: str, expected: list[str]) -> list[str]:
    rule = cron_rule(case["expr"], case["tz"], gap, fold)
    found = list(islice(fires(rule, datetime.fromisoformat(case["start"])), len(expected)))
    if found == [datetime.fromisoformat(at) for at in expected]:
        return []
    return [f"{case['id']} {case['expr']!r} {case['tz']} {gap}+{fold}: {[at.isoformat() for at in found]}"]


def test_every_plain_expression_fires_when_the_vectors_say() -> None:
    cases = [case for case in vectors("cron_valid.jsonl") if is_available(case["expr"])]
    wrong = [line for case in cases for line in mismatches(case, "next_valid", "first", case["expected"])]
    assert wrong == []
    assert len(cases) == 99


def test_every_larger_expression_is_refused_as_not_available_yet() -> None:
    cases = [case for case in vectors("cron_valid.jsonl") if not is_available(case["expr"])]
    for case in cases:
        with pytest.raises(NotAvailable) as refused:
            cron_rule(case["expr"], case["tz"])
        assert refused.value.errors[0].field == "cron"
        assert refused.value.errors[0].code == "not_available"
        assert "not available yet; write" in refused.value.errors[0].message
    assert len(cases) == 69


def test_every_daylight_saving_policy_fires_when_the_vectors_say() -> None:
    cases = vectors("cron_dst.jsonl")
    wrong, checked = [], 0
    for case in cases:
        for policy, expected in case["expected_by_policy"].items():
            gap, fold = policy.split("+")
            wrong += mismatches(case, gap, fold, expected)
            checked += 1
    assert wrong == []
    assert (len(cases), checked) == (91, 364)


def test_every_invalid_expression_is_refused_by_name_within_a_tenth_of_a_second() -> None:
    cases = vectors("cron_invalid.jsonl")
    for case in cases:
        began = perf_counter()
        with pytest.raises(InvalidInput) as refused:
            cron_rule(case["expr"])
        assert perf_counter() - began < 0.1, case
        assert [error.field for error in refused.value.errors] == ["cron"], case
        assert len(refused.value.errors[0].message) > 20, case
    assert len(cases) == 120
