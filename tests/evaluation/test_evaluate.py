"""The whole protocol on features that are easy or hard by construction, and the rules that choose the rate."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation import Features, evaluate
from kcciol.evaluation.rates import RateChoice, choose_rate, climb, holdout_part, pick, search_images

W = {"weight": torch.zeros(6, 16), "bias": torch.zeros(6)}
CONFIG = EvaluationConfig(
    rule="holdout",
    classes=(3, 6),
    trajectories=4,
    train_samples=5,
    test_samples=3,
    rates=(0.1, 0.01, 0.001),
    search_trajectories=2,
)


def clusters(classes: int = 8, noise: float = 0.4, seed: int = 0) -> Features:
    """Features around one centre a class: 5 to learn from, 3 held out."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 1, 16, generator=random)
    images = (centres + noise * torch.randn(classes, 8, 16, generator=random)).relu()
    return Features(images[:, :5], images[:, 5:])


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    for length in result["classes"].values():
        del length["seconds"]
    return result


def test_easy_classes_are_learned_and_the_result_is_json() -> None:
    lines: list[str] = []
    result = evaluate(clusters(), W, CONFIG, progress=lines.append).to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert list(result["classes"]) == ["3", "6"]
    six = result["classes"]["6"]
    assert six["test"]["mean"] > 60
    assert six["test"]["n"] == 4
    parts = {"test", "train", "learned", "forgetting", "by_trajectory", "curve", "rate", "seconds"}
    assert set(six) == parts
    assert abs(sum(six["by_trajectory"]) / 4 - six["test"]["mean"]) < 1e-9
    assert [point["classes_seen"] for point in six["curve"]] == [1, 2, 3, 4, 5, 6]
    assert six["curve"][-1]["mean"] == pytest.approx(six["test"]["mean"])
    assert len(six["forgetting"]["by_class"]) == 6
    assert six["forgetting"]["by_class"][-1] == 0
    assert six["rate"]["trajectories"] == 2
    assert [score["rate"] for score in six["rate"]["scores"]] == [0.001, 0.01, 0.1]
    assert len(lines) == 2
    assert lines[1].startswith("6 classes: ")


def test_same_config_same_result() -> None:
    config = replace(CONFIG, start="kaiming", classes=(3,))
    first, second = (without_seconds(evaluate(clusters(), W, config).to_dict()) for _ in range(2))
    assert first == second
    assert first != without_seconds(evaluate(clusters(), W, replace(config, seed=1)).to_dict())


def test_constructed_forgetting() -> None:
    """All classes look the same, so each new one replaces the one before: learned at once, then wholly forgotten."""
    same = torch.ones(5, 4, 2)
    config = EvaluationConfig(
        classes=(5,), trajectories=3, train_samples=4, test_samples=4, optimizer="sgd", rates=(5,)
    )
    result = evaluate(Features(same, same), {"weight": torch.zeros(5, 2), "bias": torch.zeros(5)}, config)
    length = result.classes[5]
    assert [lost.mean for lost in length.forgetting_by_class] == [100, 100, 100, 100, 0]
    assert length.learned.mean == 100
    assert (length.forgetting.mean, length.forgetting.ci95) == (100, 0)
    assert (length.test.mean, length.train.mean) == (20, 20)
    assert [summary.mean for _, summary in length.curve] == pytest.approx([100, 50, 100 / 3, 25, 20])


def test_train_and_test_images_are_told_apart() -> None:
    """Held-out images of nothing but noise: what was learned scores high, what was held out at chance."""
    features = clusters(noise=0.1)
    random = torch.Generator().manual_seed(3)
    result = evaluate(Features(features.train, torch.randn(8, 3, 16, generator=random).relu()), W, CONFIG)
    assert result.classes[6].train.mean > 80
    assert result.classes[6].test.mean < 50


def test_divergence_is_wrong_not_a_crash() -> None:
    features = clusters()
    huge = Features(features.train * 1e200, features.test * 1e200)
    length = evaluate(huge, W, replace(CONFIG, classes=(3,), optimizer="sgd", rates=(1e6,))).classes[3]
    assert length.test.mean == 0


@pytest.mark.parametrize("rule", ["holdout", "stream", "base"])
def test_honest_rules_see_no_test_image(rule: Any) -> None:
    novel, base = clusters(), clusters(seed=1)
    poisoned = Features(novel.train, torch.full_like(novel.test, math.nan))
    config = replace(CONFIG, rule=rule)
    clean_choice = choose_rate(novel, base, W, config, 6)
    assert choose_rate(poisoned, base, W, config, 6) == clean_choice
    assert max(clean_choice.scores.values()) > 50


def test_the_leaky_rule_does_see_them() -> None:
    novel = clusters()
    poisoned = Features(novel.train, torch.full_like(novel.test, math.nan))
    choice = choose_rate(poisoned, None, W, replace(CONFIG, rule="leaky"), 6)
    assert set(choice.scores.values()) == {0.0}
    assert choice.rate == 0.001


def test_holdout_scores_images_that_it_did_not_learn() -> None:
    novel = clusters()
    train, test, _ = novel.shown(CONFIG, torch.zeros(1, 1, dtype=torch.int64), "search")
    learned, scored = search_images(train, test, CONFIG)
    assert torch.equal(torch.cat([learned[:], scored[:]], dim=1)[..., :16], novel.train)
    assert learned.shape[1] == 4
    assert [holdout_part(n) for n in (2, 3, 4, 5, 10, 15, 30)] == [1, 2, 3, 4, 8, 12, 24]


GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def test_ties_go_to_the_smaller_rate_and_edges_are_flagged() -> None:
    grid = [0.1, 0.2, 0.3]

    def picked(*scores: float) -> RateChoice:
        return pick("stream", grid, dict(zip(grid, scores, strict=True)), 1, 4)

    assert picked(5.0, 7.0, 7.0).rate == 0.2
    assert not picked(5.0, 7.0, 7.0).at_edge
    assert picked(9.0, 7.0, 7.0).at_edge
    assert picked(5.0, 7.0, 8.0).at_edge
    assert not pick("stream", [0.01, *grid], {0.1: 9.0, 0.2: 7.0}, 1, 4).at_edge  # the edge of what was tried only


@pytest.mark.parametrize("near", GRID)
def test_a_search_from_any_rate_ends_at_the_best_of_the_grid(near: float) -> None:
    config = replace(CONFIG, rates=GRID, rule="stream")
    W = {"weight": torch.zeros(6, 16), "bias": torch.zeros(6)}
    every = choose_rate(clusters(), None, W, config, 6)
    found = choose_rate(clusters(), None, W, config, 6, near=near)
    assert found.scores.items() <= every.scores.items()
    assert (found.rate, found.at_edge) == (every.rate, every.at_edge)


@pytest.mark.parametrize(
    ("scores", "near", "best"),
    [
        ([1, 7, 7, 9, 3], 1, 3),  # beyond a tie
        ([1, 1, 1, 1, 1, 5, 9, 5], 1, 6),  # out of a plain
        ([9, 5, 5, 5, 5, 5, 1, 1], 7, 0),
        ([9, 7, 6, 5, 4, 3, 2, 1], 7, 0),
    ],
)
def test_a_search_goes_on_beyond_ties(scores: list[float], near: int, best: int) -> None:
    grid = [float(i) for i in range(len(scores))]
    found = climb(grid, lambda rates: [scores[int(rate)] for rate in rates], near)
    assert max(found, key=found.__getitem__) == best


def test_a_search_begins_with_a_rate_of_the_grid() -> None:
    with pytest.raises(UserError, match=r"0\.02, is not one of the grid"):
        climb([0.01, 0.03], lambda rates: [0.0 for _ in rates], 0.02)


def test_a_search_tries_no_more_than_it_must() -> None:
    tried: list[float] = []

    def score(rates: list[float]) -> list[float]:
        tried.extend(rates)
        return [-abs(rate - 8) for rate in rates]

    grid = [float(i) for i in range(20)]
    scores = climb(grid, score, 5.0)
    assert max(scores, key=scores.__getitem__) == 8.0
    assert sorted(tried) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert list(scores) == sorted(tried)


def test_one_rate_needs_no_search() -> None:
    choice = choose_rate(clusters(), None, W, replace(CONFIG, rates=(0.02,)), 3)
    assert (choice.rate, choice.scores, choice.trajectories, choice.at_edge) == (0.02, {}, 0, False)


def hidden_W(width: int) -> dict[str, Tensor]:
    return {
        "hidden.weight": torch.randn(12, width, generator=torch.Generator().manual_seed(0)),
        "hidden.bias": torch.zeros(12),
        "weight": torch.zeros(6, 12),
        "bias": torch.zeros(6),
    }


def test_hidden_layer_end_to_end() -> None:
    result = evaluate(clusters(), hidden_W(16), replace(CONFIG, outputs=9, reinit="all"))
    assert result.classes[3].test.mean > 50


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": (3, 9)}, "9 classes, but there are 8 novel classes"),
        ({"outputs": 5}, "evaluation.outputs is 5, but a trajectory has 6"),
        ({"start": "meta", "outputs": 7}, "has 6 rows and 7 are needed"),
        ({"rule": "base"}, "no base classes were given"),
        ({"train_samples": 6}, "evaluation.train_samples is 6"),
        ({"test_samples": 4}, "evaluation.test_samples is 4"),
        ({"train_samples": 1}, "the rule 'holdout' needs 2 or more"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        evaluate(clusters(), W, replace(CONFIG, **change))


def test_mistakes_of_the_model_are_named() -> None:
    with pytest.raises(UserError, match="W takes 15 features, but there are 16"):
        evaluate(clusters(), hidden_W(15), CONFIG)


def test_base_classes_that_are_fewer_are_all_used() -> None:
    config = replace(CONFIG, rule="base")
    result = evaluate(clusters(), W, config, base=clusters(classes=4))
    longest = max(config.classes)
    assert longest > 4
    assert result.classes[longest].rate.classes == 4


def test_further_base_classes_fill_up_the_trajectories_and_are_not_scored() -> None:
    config, base, more = replace(CONFIG, rule="base"), clusters(classes=4), clusters(classes=5, seed=2)
    result = evaluate(clusters(), W, config, base, more=more)
    assert result.classes[3].rate.classes == 3
    assert result.classes[6].rate.classes == 6
    choice = choose_rate(clusters(), base, W, config, 6, more)
    unscored = Features(more.train, torch.full_like(more.test, math.nan))
    assert choose_rate(clusters(), base, W, config, 6, unscored) == choice
    unlearned = Features(torch.zeros_like(more.train), more.test)
    assert choose_rate(clusters(), base, W, config, 6, unlearned) != choice
    short = choose_rate(clusters(), base, W, config, 3, more)  # long enough without them
    assert short == choose_rate(clusters(), base, W, config, 3)


def test_images_drawn_anew_differ_from_trajectory_to_trajectory() -> None:
    pool = Features(clusters().train, clusters(seed=3).train)  # every image can be told from the others
    everything = torch.cat([pool.train, pool.test], 1)
    config = replace(CONFIG, redraw=True)
    streams = torch.tensor([[0, 3, 5], [3, 0, 1]])
    train, test, ids = pool.shown(config, streams, "report")
    assert train.shape[:2] == (6, 5)
    assert test.shape[:2] == (6, 3)
    seen: dict[tuple[int, int], list[int]] = {}
    for row in range(2):
        for position in range(3):
            label, both = int(streams[row, position]), torch.cat([part[ids[row, position]] for part in (train, test)])
            same = (both[:, None, :16] == everything[label]).all(-1)
            assert same.sum(1).tolist() == [1] * 8  # of this class
            used = same.double().argmax(1).tolist()
            assert len(set(used)) == 8  # none twice, so that none is both learned and asked
            seen[row, label] = used
    assert seen[0, 0] != seen[1, 0]
    longer = pool.shown(config, torch.tensor([[0, 3, 5, 7]]), "report")
    assert torch.equal(longer[0][longer[2][0, :3]], train[ids[0]])  # a longer stream draws the same


@pytest.mark.parametrize("rule", ["stream", "holdout", "base", "leaky"])
def test_every_rule_works_with_images_drawn_anew(rule: Any) -> None:
    pool = Features(clusters(noise=0.1).train, clusters(noise=0.1).train)
    config = replace(CONFIG, rule=rule, redraw=True)
    one = evaluate(pool, W, config, base=pool).to_dict()
    assert without_seconds(evaluate(pool, W, config, base=pool).to_dict()) == without_seconds(one)
    assert one["classes"]["6"]["test"]["mean"] > 60
    assert one["classes"]["6"]["test"]["std"] > 0
