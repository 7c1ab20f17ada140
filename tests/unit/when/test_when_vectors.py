"""The conformance vectors: each fires when it should, is told in words, or is refused."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from time import thread_time
from typing import Any

import pytest

from conformance import vectors
from detent.model.errors import InvalidInput
from detent.when.rule import cron_rule, fires
from detent.when.words import in_words


def mismatches(case: dict[str, Any], gap: str, fold: str, expected: list[str]) -> list[str]:
    rule = cron_rule(case["expr"], case["tz"], gap, fold)
    found = list(islice(fires(rule, datetime.fromisoformat(case["start"])), len(expected)))
    if found == [datetime.fromisoformat(at) for at in expected]:
        return []
    return [f"{case['id']} {case['expr']!r} {case['tz']} {gap}+{fold}: {[at.isoformat() for at in found]}"]


def test_every_expression_fires_when_the_vectors_say() -> None:
    cases = vectors("cron_valid.jsonl")
    wrong = [line for case in cases for line in mismatches(case, "next_valid", "first", case["expected"])]
    assert wrong == []
    assert len(cases) >= 168


def test_every_expression_is_told_in_words() -> None:
    sentences = {}
    for case in [*vectors("cron_valid.jsonl"), *vectors("cron_dst.jsonl")]:
        rule = cron_rule(case["expr"], case["tz"])
        sentence = in_words(rule)
        assert sentence == in_words(cron_rule(case["expr"], case["tz"]))
        assert len(sentence) > 8, case
        assert sentence == " ".join(sentence.split()), case
        assert not any(mark in sentence.replace(case["tz"], "") for mark in "*?#[]()_."), (case, sentence)
        sentences.setdefault((sentence, case["tz"]), set()).add(rule.expression.day_rule)
    # Two expressions that share a sentence mean the same days.
    assert [words for words, days in sentences.items() if len(days) > 1] == []


def test_every_daylight_saving_policy_fires_when_the_vectors_say() -> None:
    cases = vectors("cron_dst.jsonl")
    wrong, checked = [], 0
    for case in cases:
        for policy, expected in case["expected_by_policy"].items():
            gap, fold = policy.split("+")
            wrong += mismatches(case, gap, fold, expected)
            checked += 1
    assert wrong == []
    assert checked >= 364


def test_every_invalid_expression_is_refused_by_name_in_a_tenth_of_a_second_of_work() -> None:
    cases = vectors("cron_invalid.jsonl")
    for case in cases:
        began = thread_time()
        with pytest.raises(InvalidInput) as refused:
            cron_rule(case["expr"])
        assert thread_time() - began < 0.1, case
        assert [error.field for error in refused.value.errors] == ["cron"], case
        assert len(refused.value.errors[0].message) > 20, case
    assert len(cases) >= 120
