"""`rule + trim` in the synthetic world: never slower than plain, whatever the rule believes."""

from __future__ import annotations

import pytest

TRIMMED = {
    "entropy": {"tau": 0.2, "above": "none", "below": "retrieval"},
    "arctic": {"rule": "arctic"},
    "trtllm": {"rule": "trtllm"},
    "respec": {"rule": "respec"},
    "bandit": {"reward": "efficiency"},
    "bandit by namespace": {"reward": "efficiency", "scope": "namespace"},
}


def policy_name(rule: str) -> str:
    name = rule.split()[0]
    return "rules" if name in ("arctic", "trtllm", "respec") else name


@pytest.mark.parametrize("kind", ["copy", "code", "prose", "hostile"])
@pytest.mark.parametrize("rows", [1, 24])
@pytest.mark.parametrize("rule", sorted(TRIMMED))
def test_trimmed_rules_keep_up_with_plain(world, text, rule, kind, rows):
    texts, steps = [text[kind]] * rows, 1200 if rows == 1 else 400
    plain = world(texts, "static", arm="none").run(steps)
    scene = world(texts, policy_name(rule), trim=True, **TRIMMED[rule]).run(steps)
    assert scene.goodput >= 0.98 * plain.goodput


# All drafts of this world begin alike, so ReSpec takes them for one candidate that may fall out.
@pytest.mark.parametrize("rule", ["arctic", "trtllm", "bandit"])
def test_rules_gain_where_text_repeats(world, text, rule):
    texts = [text["copy"]]
    plain = world(texts, "static", arm="none").run(400)
    for trim in (False, True):
        scene = world(texts, policy_name(rule), trim=trim, **TRIMMED[rule]).run(400)
        assert scene.goodput >= 2.0 * plain.goodput


def test_an_untrimmed_rule_pays_for_what_it_believes(world, text):
    """The yardstick is not rigged: as published, hostile text costs it."""
    texts = [text["hostile"]] * 24
    plain = world(texts, "static", arm="none").run(300)
    assert world(texts, "rules", rule="trtllm").run(300).goodput < 0.9 * plain.goodput
