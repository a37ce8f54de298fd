"""The whole protocol on features that are easy or hard by construction, and the rules that choose the rate."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation import Examples, evaluate
from kcciol.evaluation.choose import Choice, Sources, holdout_part, images_of, search_around
from kcciol.evaluation.measure import measure_learner
from kcciol.evaluation.protocol import Scenario, choose_settings
from kcciol.evaluation.selection import image_order
from kcciol.evaluation.stream import draw
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head

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


def clusters(classes: int = 8, noise: float = 0.4, seed: int = 0) -> Examples:
    """Examples around one centre a class: 5 to learn from, 3 held out."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 1, 16, generator=random)
    images = (centres + noise * torch.randn(classes, 8, 16, generator=random)).relu()
    return Examples(images[:, :5], images[:, 5:])


def choose_rate(
    novel: Examples,
    base: Examples | None,
    W: dict[str, Tensor],
    config: EvaluationConfig,
    classes: int,
    more: Examples | None = None,
    near: float | None = None,
) -> Choice:
    return choose_settings(Scenario(novel, Head(novel.width), base, more, W), config, classes, near)


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    for length in result["classes"].values():
        del length["seconds"], length["choice"]["seconds"]
    del result["choice"]["seconds"]
    return result


def test_easy_classes_are_learned_and_the_result_is_json() -> None:
    lines: list[str] = []
    result = evaluate(clusters(), W, CONFIG, progress=lines.append).to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert list(result["classes"]) == ["3", "6"]
    six = result["classes"]["6"]
    assert six["test"]["mean"] > 60
    assert six["test"]["n"] == 4
    parts = {"test", "train", "learned", "forgetting", "by_trajectory", "curve", "choice", "seconds"}
    assert set(six) - {"ci95_of_images"} == parts | {"mean", "std", "n", "ci95"}
    assert abs(sum(six["by_trajectory"]) / 4 - six["test"]["mean"]) < 1e-9
    assert [point["classes_seen"] for point in six["curve"]] == [1, 2, 3, 4, 5, 6]
    assert six["curve"][-1]["mean"] == pytest.approx(six["test"]["mean"])
    assert len(six["forgetting"]["by_class"]) == 6
    assert six["forgetting"]["by_class"][-1] == 0
    assert six["choice"]["trajectories"] == 2
    assert sorted(score["settings"]["rate"] for score in six["choice"]["scores"]) == [0.001, 0.01, 0.1]
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
    result = evaluate(Examples(same, same), {"weight": torch.zeros(5, 2), "bias": torch.zeros(5)}, config)
    length = result.classes[5]
    assert [lost.mean for lost in length.forgetting_by_class] == [100, 100, 100, 100, 0]
    assert length.learned is not None
    assert length.learned.mean == 100
    assert length.forgetting is not None
    assert (length.forgetting.mean, length.forgetting.ci95) == (100, None)  # how far from it others lie is not known
    assert (length.test.mean, length.train.mean) == (20, 20)
    assert [summary.mean for _, summary in length.curve] == pytest.approx([100, 50, 100 / 3, 25, 20])


def test_train_and_test_images_are_told_apart() -> None:
    """Held-out images of nothing but noise: what was learned scores high, what was held out at chance."""
    features = clusters(noise=0.1)
    random = torch.Generator().manual_seed(3)
    result = evaluate(Examples(features.train, torch.randn(8, 3, 16, generator=random).relu()), W, CONFIG)
    assert result.classes[6].train.mean > 80
    assert result.classes[6].test.mean < 50


def test_divergence_is_wrong_not_a_crash() -> None:
    features = clusters()
    huge = Examples(features.train * 1e30, features.test * 1e30)
    length = evaluate(huge, W, replace(CONFIG, classes=(3,), optimizer="sgd", rates=(1e6,))).classes[3]
    assert length.test.mean == 0


@pytest.mark.parametrize("rule", ["holdout", "stream", "base"])
def test_honest_rules_see_no_test_image(rule: Any) -> None:
    novel, base = clusters(), clusters(seed=1)
    poisoned = Examples(novel.train, torch.full_like(novel.test, math.nan))
    config = replace(CONFIG, rule=rule)
    clean_choice = choose_rate(novel, base, W, config, 6)
    assert choose_rate(poisoned, base, W, config, 6) == clean_choice
    assert max(clean_choice.scores.values()) > 50


def test_the_leaky_rule_does_see_them() -> None:
    novel = clusters()
    poisoned = Examples(novel.train, torch.full_like(novel.test, math.nan))
    choice = choose_rate(poisoned, None, W, replace(CONFIG, rule="leaky"), 6)
    assert set(choice.scores.values()) == {0.0}
    assert choice.rate == 0.001


def test_holdout_scores_images_that_it_did_not_learn() -> None:
    novel = clusters()
    streams, _ = Sources(novel).search(CONFIG, "class", 3)
    assert torch.equal(torch.cat([streams.train[:], streams.test[:]], dim=1), novel.train)
    assert streams.train.shape[1] == 4
    assert [holdout_part(n) for n in (2, 3, 4, 5, 10, 15, 30)] == [1, 2, 3, 4, 8, 12, 24]


GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def test_edges_are_flagged() -> None:
    grid = [GradientSettings(rate=rate) for rate in (0.3, 0.2, 0.1)]

    def at_edge(best: GradientSettings) -> bool:
        return bool(Choice("stream", best, grid, dict.fromkeys(grid, 1.0)).to_dict()["at_edge"])

    assert [at_edge(best) for best in grid] == [True, False, True]
    wider = [*grid, GradientSettings(rate=0.01)]
    assert Choice("stream", grid[2], wider, dict.fromkeys(grid, 1.0)).at_edge == []  # of what was tried only


def test_ties_go_to_the_smaller_rate() -> None:
    nothing = Examples(torch.zeros(6, 5, 16), torch.zeros(6, 3, 16))
    assert choose_rate(nothing, None, W, replace(CONFIG, rates=(0.1, 0.01, 0.2)), 3).rate == 0.01


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
    found = search_around(grid, lambda rates: [scores[int(rate)] for rate in rates], float(near))
    assert max(found, key=found.__getitem__) == best


def test_a_search_begins_with_a_rate_of_the_grid() -> None:
    with pytest.raises(UserError, match=r"0\.02, is not one of the grid"):
        choose_rate(clusters(), None, W, CONFIG, 3, near=0.02)


def test_a_search_tries_no_more_than_it_must() -> None:
    tried: list[float] = []

    def score(rates: Sequence[float]) -> list[float]:
        tried.extend(rates)
        return [-abs(rate - 8) for rate in rates]

    grid = [float(i) for i in range(20)]
    scores = search_around(grid, score, 5.0)
    assert max(scores, key=scores.__getitem__) == 8.0
    assert sorted(tried) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    assert list(scores) == sorted(tried)


def test_one_rate_needs_no_search() -> None:
    choice = choose_rate(clusters(), None, W, replace(CONFIG, rates=(0.02,)), 3)
    assert (choice.rate, choice.scores, choice.trajectories, choice.at_edge) == (0.02, {}, 0, [])


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


def test_what_is_no_number_is_refused() -> None:
    novel = clusters()
    with pytest.raises(UserError, match="novel classes hold a value that is not a finite number"):
        evaluate(Examples(novel.train, novel.test / 0), W, CONFIG)


def test_mistakes_of_the_model_are_named() -> None:
    with pytest.raises(UserError, match="W takes 15 features, but there are 16"):
        evaluate(clusters(), hidden_W(15), CONFIG)


def test_base_classes_that_are_fewer_are_all_used() -> None:
    config = replace(CONFIG, rule="base")
    result = evaluate(clusters(), W, config, base=clusters(classes=4))
    longest = max(config.classes)
    assert longest > 4
    assert result.classes[longest].choice.classes == 4


def test_further_base_classes_fill_up_the_trajectories_and_are_not_scored() -> None:
    config, base, more = replace(CONFIG, rule="base"), clusters(classes=4), clusters(classes=5, seed=2)
    result = evaluate(clusters(), W, config, base, more=more)
    assert result.classes[3].choice.classes == 3
    assert result.classes[6].choice.classes == 6
    choice = choose_rate(clusters(), base, W, config, 6, more)
    unscored = Examples(more.train, torch.full_like(more.test, math.nan))
    assert choose_rate(clusters(), base, W, config, 6, unscored) == choice
    unlearned = Examples(torch.zeros_like(more.train), more.test)
    assert choose_rate(clusters(), base, W, config, 6, unlearned) != choice
    short = choose_rate(clusters(), base, W, config, 3, more)  # long enough without them
    assert short == choose_rate(clusters(), base, W, config, 3)


def test_images_drawn_anew_differ_from_trajectory_to_trajectory() -> None:
    pool = Examples(clusters().train, clusters(seed=3).train)  # every image can be told from the others
    everything = torch.cat([pool.train, pool.test], 1)
    config = replace(CONFIG, redraw=True)
    streams = torch.tensor([[0, 3, 5], [3, 0, 1]])
    train, test, ids = images_of(pool, streams, config, "report")
    assert train.shape[:2] == (6, 5)
    assert test.shape[:2] == (6, 3)
    seen: dict[tuple[int, int], list[int]] = {}
    for row in range(2):
        for position in range(3):
            label, both = int(streams[row, position]), torch.cat([part[ids[row, position]] for part in (train, test)])
            same = (both[:, None] == everything[label]).all(-1)
            assert same.sum(1).tolist() == [1] * 8  # of this class
            used = same.double().argmax(1).tolist()
            assert len(set(used)) == 8  # none twice, so that none is both learned and asked
            seen[row, label] = used
    assert seen[0, 0] != seen[1, 0]
    longer = images_of(pool, torch.tensor([[0, 3, 5, 7]]), config, "report")
    assert torch.equal(longer[0][longer[2][0, :3]], train[ids[0]])  # a longer stream draws the same


def many(samples: int = 60) -> Examples:
    """So many images of each class that some are held out in no trajectory."""
    random = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 1, 16, generator=random)
    images = (centres + 0.1 * torch.randn(8, samples, 16, generator=random)).relu()
    return Examples(images[:, :5], images[:, 5:])


@pytest.mark.parametrize("rule", ["stream", "holdout", "base", "leaky"])
def test_every_rule_works_with_images_drawn_anew(rule: Any) -> None:
    pool = many()
    config = replace(CONFIG, rule=rule, redraw=True)
    one = evaluate(pool, W, config, base=pool).to_dict()
    assert without_seconds(evaluate(pool, W, config, base=pool).to_dict()) == without_seconds(one)
    assert one["classes"]["6"]["test"]["mean"] > 60
    assert one["classes"]["6"]["test"]["std"] > 0


@pytest.mark.parametrize("rule", ["stream", "holdout", "base", "leaky"])
@pytest.mark.parametrize("redraw", [False, True])
def test_a_search_never_sees_what_a_reported_trajectory_holds_out(rule: Any, redraw: bool) -> None:
    """But by the rule `leaky`. An image's only feature is its number, those of base classes are below 0."""
    numbers = 1 + torch.arange(8.0 * 60).view(8, 60, 1)
    novel, base = (Examples(x[:, :5], x[:, 5:]) for x in (numbers, -numbers))
    config = replace(CONFIG, rule=rule, redraw=redraw, search_trajectories=20)
    searched, held_out = set(), set()
    for n in config.classes:
        streams, _ = Sources(novel, base).search(config, "class", n)
        for part in (streams.train, streams.test):
            searched |= set(part[streams.classes].flatten().tolist())
        drawn = draw(config.seed, "report", len(novel), n, config.trajectories)
        _, test, ids = images_of(novel, drawn, config, "report")
        held_out |= set(test[ids].flatten().tolist())
    assert len(searched) > 20
    assert len(held_out) > 20
    assert (not searched & held_out) == (rule != "leaky")


def test_a_search_learns_what_no_trajectory_holds_out_or_is_refused() -> None:
    config = replace(CONFIG, rule="stream", redraw=True)
    held_out = [image_order(0, "report", label, number, 12)[5:8] for label in range(8) for number in range(4)]
    left = min(12 - len({i for k in range(4) for i in held_out[4 * label + k].tolist()}) for label in range(8))
    assert 2 <= left < 5
    pool = many(12)
    assert choose_rate(pool, None, W, config, 3).samples == left
    with pytest.raises(UserError, match="images that no reported trajectory holds out"):
        evaluate(pool, W, replace(config, trajectories=40))


def test_lengths_apart_and_prefixes() -> None:
    """The longest trajectories are the same; shorter ones are of their own, or the beginnings of the longest."""
    config = replace(CONFIG, rates=(0.01,), outputs=6)
    apart, prefixes = (evaluate(clusters(), W, replace(config, lengths=lengths)) for lengths in ("apart", "prefixes"))
    assert apart.classes[6].by_trajectory == prefixes.classes[6].by_trajectory
    assert apart.classes[3].by_trajectory != prefixes.classes[3].by_trajectory
    assert [p.mean for seen, p in prefixes.classes[6].curve if seen == 3] == [prefixes.classes[3].test.mean]
    assert prefixes.classes[3].choice == prefixes.classes[6].choice


def test_an_interval_counts_the_images_where_nothing_else_differs() -> None:
    """All classes, whose order changes nothing: the same 24 images in every trajectory."""
    config = replace(CONFIG, classes=(8,), trajectories=5)
    scenario = Scenario(clusters(noise=1.5), Head(16))
    result = measure_learner(scenario, "ncm", config)["classes"]["8"]
    assert result["std"] == 0
    assert 0 < result["mean"] < 100
    assert result["ci95_of_images"] == 24
    assert result["ci95"] > 10
