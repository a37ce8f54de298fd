"""PODNet: its head, its loss, and what the teacher changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.model import Head
from kcciol.learners.podnet import PODNet, PODNetSettings, class_scores, margin_loss, pod_flat, pod_spatial
from tests.learners.battery import NET, WIDTH, examples, feed, make, network
from tests.learners.explicit import to_double


def podnet(**settings: Any) -> PODNet:
    learner = make("podnet", network(), **{"margin": 0.6, **settings})
    assert isinstance(learner, PODNet)
    return learner


def random_maps(seed: int, copies: int = 2, examples: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sides = ((4, 6), (3, 2))
    return [torch.rand(copies, examples, 3, *side, generator=generator) for side in sides]


def test_a_frozen_network_is_refused() -> None:
    with pytest.raises(UserError, match="exactly zero, so use `er`"):
        make("podnet", Head(WIDTH))


def test_the_distance_of_maps_is_zero_for_equal_networks_and_blind_to_a_maps_scale() -> None:
    a, b = random_maps(0), random_maps(1)
    assert pod_spatial(a, a).tolist() == [0, 0]
    distance = pod_spatial(a, b)
    assert bool((distance > 0.05).all())
    torch.testing.assert_close(pod_spatial([3 * a[0], a[1]], [b[0], 0.1 * b[1]]), distance)


def test_the_distance_of_maps_by_hand() -> None:
    """One layer, one example, one channel of 2 x 2: sums of squares along rows, then along columns."""
    a, b = torch.tensor([[1.0, 2], [0, 2]]).view(1, 1, 1, 2, 2), torch.tensor([[1.0, 0], [0, 0]]).view(1, 1, 1, 2, 2)
    one, two = torch.tensor([5.0, 4, 1, 8]), torch.tensor([1.0, 0, 1, 0])
    expected = (one / one.norm() - two / two.norm()).norm()
    torch.testing.assert_close(pod_spatial([a], [b]), expected[None])


def test_the_distance_of_features_is_one_minus_their_cosine() -> None:
    a = torch.tensor([[[1.0, 0], [1, 1]]])
    b = torch.tensor([[[0.0, 3], [2, 2]]])
    torch.testing.assert_close(pod_flat(a, b), torch.tensor([0.5]))
    torch.testing.assert_close(pod_flat(a, 7 * a), torch.zeros(1))


def test_one_proxy_is_a_cosine_classifier() -> None:
    generator = torch.Generator().manual_seed(0)
    z, proxies = torch.randn(2, 5, 7, generator=generator), torch.randn(2, 3, 1, 7, generator=generator)
    cosine = F.cosine_similarity(z[:, :, None], proxies[:, None, :, 0], dim=-1)
    torch.testing.assert_close(class_scores(z, proxies), 2 * cosine - 2)


def test_a_class_score_leans_towards_the_nearest_proxy() -> None:
    z, near, far = torch.tensor([1.0, 0]), torch.tensor([2.0, 0]), torch.tensor([-1.0, 0])
    proxies = torch.stack([torch.stack([near, near]), torch.stack([near, far]), torch.stack([far, far])])
    weight = torch.tensor([0.0, -4.0]).softmax(0)[1]  # of the far one, whose s is -4
    torch.testing.assert_close(
        class_scores(z[None, None], proxies[None])[0, 0], torch.stack([weight * 0, -4 * weight, torch.tensor(-4.0)])
    )


def test_the_loss_depends_on_the_margin_and_is_cut_at_zero() -> None:
    scores, y = torch.tensor([[[-1.0, -2.0, 9.0], [-0.5, -3.0, 5.0]]]), torch.tensor([[0, 1]])
    seen = torch.tensor([[True, True, False]])  # the third does not take part
    for margin, expected in ((0.0, [0.0, 5.0]), (0.6, [0.0, 6.2]), (1.5, [1.0, 8.0])):
        loss = margin_loss(scores, y, torch.tensor([2.0]), torch.tensor([margin]), seen)
        torch.testing.assert_close(loss, torch.tensor([expected]))


def test_with_one_class_the_loss_is_the_cross_entropy_and_has_a_gradient() -> None:
    scores = torch.tensor([[[-1.0, -2.0]], [[-1.0, -2.0]]], requires_grad=True)
    seen = torch.tensor([[True, False], [True, True]])  # the first copy has seen one class
    loss = margin_loss(scores, torch.tensor([[0], [1]]), torch.ones(2), torch.full((2,), 0.6), seen)
    assert loss[:, 0].tolist() == pytest.approx([0, 1.6])
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert gradient[:, 0].tolist() == [[0, 0], [1, -1]]


# --- whole updates against autograd -----------------------------------------------------------------------------------

Stream = tuple[Tensor, np.ndarray[Any, Any]]
OWN: list[dict[str, Any]] = [
    {"rate": 0.125, "tune_rate": 0.25, "margin": 1.5, "spatial": 3.0, "flat": 0.75, "replay_weight": 0.5},
    {"rate": 0.0625, "tune_rate": 0.5, "margin": 2.0, "spatial": 0.5, "flat": 2.0, "replay_weight": 3.0},
]


def two_streams(**settings: Any) -> tuple[PODNet, list[Stream]]:
    """Two copies in their third task, the second with fewer classes, in float64, and their streams of 9 examples of
    which 8 have been learned; all that is kept is replayed."""
    same: dict[str, Any] = {"slots": 9, "replay": 99, "proxies": 3, "tune_passes": 2, **settings}
    learner = PODNet(network(), [PODNetSettings(**own, **same) for own in OWN], (3, 8))
    to_double(learner)
    x, y = examples(learner.model, 9, classes=3)
    streams = [(x, y), (x[np.arange(9) // 2], y[np.arange(9) // 2])]
    for i in range(8):
        if i in (3, 6):
            learner.end_task()
        learner.learn(torch.stack([xs[i] for xs, _ in streams]), np.array([ys[i] for _, ys in streams]))
    return learner, streams


def parameters_of(learner: PODNet, copy: int, prefix: str = "parameters.") -> dict[str, Tensor]:
    """Those of one copy, free to be differentiated; proxies of the classes that it has seen."""
    state = {n.removeprefix(prefix): t[copy] for n, t in learner.state_dict().items() if n.startswith(prefix)}
    seen = int(learner.seen[copy].sum())
    return {
        n: (t[:seen] if n == "weight" else t).clone().requires_grad_(t.is_floating_point()) for n, t in state.items()
    }


def maps_of(p: dict[str, Tensor], x: Tensor) -> list[Tensor]:
    maps = [x.double() / 255]
    for layer, stride in enumerate(NET.strides, 1):
        maps.append(F.conv2d(maps[-1], p[f"conv{layer}.weight"], p[f"conv{layer}.bias"], stride).relu())
    return maps[1:]


def features_of(maps: list[Tensor]) -> Tensor:
    return maps[-1].permute(0, 2, 3, 1).flatten(1)


def plain_losses(p: dict[str, Tensor], h: Tensor, y: Tensor, margin: float) -> Tensor:
    """(m,) of features (m, d)."""
    unit, proxies = h / h.norm(dim=-1, keepdim=True), p["weight"] / p["weight"].norm(dim=-1, keepdim=True)
    s = -(unit[:, None, None] - proxies).square().sum(-1)
    scores, eta, losses = (s.softmax(-1) * s).sum(-1), p["scale"].exp(), []
    for score, c in zip(scores, y.tolist(), strict=True):
        others = torch.cat([score[:c], score[c + 1 :]])
        losses.append((-eta * (score[c] - margin) + (eta * others).exp().sum().log()).clamp_min(0))
    return torch.stack(losses)


def plain_distillation(maps: list[Tensor], old: list[Tensor], spatial: float, flat: float) -> Tensor:
    apart = []
    for a, b in zip(maps, old, strict=True):
        pooled = [torch.cat([m.square().sum(3).flatten(1), m.square().sum(2).flatten(1)], 1) for m in (a, b)]
        one, two = (v / v.norm(dim=1, keepdim=True) for v in pooled)
        apart.append((one - two).norm(dim=1).mean())
    cosine = F.cosine_similarity(features_of(maps), features_of(old), dim=1)
    return spatial * sum(apart, torch.zeros(())) / len(apart) + flat * (1 - cosine).mean()


def descended(p: dict[str, Tensor], names: list[str], loss: Tensor, rate: float) -> dict[str, Tensor]:
    gradient = dict(zip(names, torch.autograd.grad(loss, [p[n] for n in names]), strict=True))
    moved = {n: (p[n] - rate * g.clamp(-5, 5)).detach().requires_grad_() for n, g in gradient.items()}
    assert all(not torch.equal(p[n], moved[n]) for n in names)
    return p | moved


def check(learner: PODNet, copy: int, expected: dict[str, Tensor]) -> None:
    got = parameters_of(learner, copy)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-6, atol=1e-8)  # weights of losses are float32


@pytest.mark.parametrize("weighting", ["joint", "additive"])
@pytest.mark.parametrize("old_proxies", ["trained", "frozen"])
def test_a_step_descends_on_margin_loss_and_distillation_in_all_parameters(old_proxies: str, weighting: str) -> None:
    learner, streams = two_streams(old_proxies=old_proxies, weighting=weighting)
    before = [(parameters_of(learner, c), parameters_of(learner, c, "teacher.")) for c in range(2)]
    learner.learn(torch.stack([x[8] for x, _ in streams]), np.array([y[8] for _, y in streams]))
    for copy, ((x, y), (p, teacher)) in enumerate(zip(streams, before, strict=True)):
        own = OWN[copy]
        maps, old = maps_of(p, x), maps_of(teacher, x)
        losses = plain_losses(p, features_of(maps), torch.from_numpy(y), own["margin"])
        mean = losses.mean() if weighting == "joint" else losses[8] + own["replay_weight"] * losses[:8].mean()
        n = len(p["weight"])  # one of them is new
        loss = mean + n**0.5 * plain_distillation(maps, old, own["spatial"], own["flat"])
        after = descended(p, list(p), loss, own["rate"])
        if old_proxies == "frozen":
            after["weight"] = torch.cat([p["weight"][: n - 1], after["weight"][n - 1 :]])
        check(learner, copy, after)


def test_tuning_descends_on_the_margin_loss_of_the_memory_in_proxies_and_scale() -> None:
    """Two passes, each one step on all that is kept."""
    learner, streams = two_streams()
    before = [parameters_of(learner, copy) for copy in range(2)]
    learner.end_task()
    for copy, ((x, y), p) in enumerate(zip(streams, before, strict=True)):
        own, h = OWN[copy], features_of(maps_of(p, x[:8])).detach()
        for _ in range(2):
            loss = plain_losses(p, h, torch.from_numpy(y[:8]), own["margin"]).mean()
            p = descended(p, ["weight", "scale"], loss, own["tune_rate"])
        check(learner, copy, p)


# --- the teacher ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spatial", "flat"])
def test_each_distillation_changes_the_update(name: str) -> None:
    off = {"spatial": 0.0, "flat": 0.0}
    without, taught = podnet(**off), podnet(**(off | {name: 3.0}))
    x, y = examples(without.model, 12)
    for learner in (without, taught):
        feed(learner, x, y)
    moved = without.state["parameters.conv1.weight"] - taught.state["parameters.conv1.weight"]
    assert moved.abs().max() > 1e-4  # more than rounding


def test_at_strength_zero_a_teacher_changes_no_bit() -> None:
    """Beside a copy that is taught, so that the terms are really there and multiplied by zero."""
    small: dict[str, Any] = {
        "rate": 0.1,
        "slots": 7,
        "replay": 3,
        "proxies": 3,
        "tune_passes": 0,
        "old_proxies": "trained",
    }
    zero, some = PODNetSettings(spatial=0.0, flat=0.0, **small), PODNetSettings(**small)
    taught, alone = PODNet(network(), [zero, some], (3, 4)), PODNet(network(), [zero, some], (3, 4))
    x, y = examples(taught.model, 12)
    feed(taught, x, y)
    feed(alone, x, y, tasks=False)
    one, two = taught.state_dict(), alone.state_dict()
    for name in one:
        if name.startswith("parameters."):
            assert torch.equal(one[name][0], two[name][0])
            assert not torch.equal(one[name][1], two[name][1])


def test_the_teacher_is_the_network_at_the_last_boundary() -> None:
    learner = podnet()
    x, y = examples(learner.model, 12)
    feed(learner, x[:4], y[:4])
    before = learner.state_dict()
    learner.end_task()
    feed(learner, x[4:6], y[4:6], tasks=False)
    after = learner.state_dict()
    for name in learner.theta_names:
        assert torch.equal(after["teacher." + name], before["parameters." + name])
        assert not torch.equal(after["teacher." + name], after["parameters." + name])


def test_the_distillation_grows_with_the_classes_that_are_not_new() -> None:
    learner = podnet()
    x, y = examples(learner.model, 12)
    feed(learner, x[:9], y[:9])  # classes 0 and 1 are of earlier tasks, 2 is new
    maps = learner.net.maps(learner.parameters, x[None, :5])
    teacher = {name: learner.state["teacher." + name] for name in learner.theta_names}
    old = learner.net.maps(teacher | {"weight": learner.parameters["weight"]}, x[None, :5])
    z, before = learner.net.flat(maps[-1]), learner.net.flat(old[-1])
    expected = 3**0.5 * (3.0 * pod_spatial(maps, old) + 1.0 * pod_flat(z, before))
    assert float(expected) > 0
    torch.testing.assert_close(learner._distillation(maps, z, x[None, :5]), expected)


def test_the_network_that_the_stream_begins_with_may_teach_the_first_task() -> None:
    x, y = examples(network(), 6, classes=2)
    nobody, start = podnet(), podnet(first_teacher="start")
    for learner in (nobody, start):
        feed(learner, x, y, tasks=False)
    assert not torch.equal(nobody.state["parameters.conv1.weight"], start.state["parameters.conv1.weight"])


def test_proxies_of_earlier_tasks_are_frozen_but_for_tuning_which_moves_nothing_below() -> None:
    learner = podnet(tune_passes=2)
    x, y = examples(learner.model, 12)
    feed(learner, x[:6], y[:6])  # classes 0 and 1
    learner.end_task()
    before = learner.state_dict()
    feed(learner, x[6:9], y[6:9])  # class 2
    after = learner.state_dict()
    assert torch.equal(after["parameters.weight"][:, :2], before["parameters.weight"])
    learner.end_task()
    tuned = learner.state_dict()
    assert not torch.equal(tuned["parameters.weight"][:, :2], before["parameters.weight"])
    assert all(torch.equal(tuned["parameters." + n], after["parameters." + n]) for n in learner.theta_names)


def test_no_gradient_moves_a_parameter_by_more_than_the_limit() -> None:
    learner = podnet(rate=0.01, spatial=1e6)
    x, y = examples(learner.model, 12)
    feed(learner, x[:7], y[:7])
    before = learner.state_dict()
    feed(learner, x[7:8], y[7:8])
    names = ("parameters.conv1.weight", "parameters.conv1.bias")
    moved = max(float((learner.state[name] - before[name]).abs().max()) for name in names)
    assert moved == pytest.approx(0.05, rel=1e-4)


def test_a_new_class_starts_at_its_first_example() -> None:
    learner = podnet(spread=0.0, rate=1e-12)
    x, _ = examples(learner.model, 1)
    feed(learner, x, np.array([4]))
    h = F.normalize(learner.net.features(learner.parameters, x[None])[0, 0], dim=-1)
    torch.testing.assert_close(learner.rows["parameters.weight"][0, 4], h.expand(3, -1))
    spread = podnet(spread=0.1, rate=1e-12)
    feed(spread, x, np.array([4]))
    noise = spread.rows["parameters.weight"][0, 4] - h
    assert noise.norm(dim=-1).tolist() == pytest.approx([0.1] * 3, rel=0.4)
    assert not torch.equal(noise[0], noise[1])


def test_the_teacher_counts_as_memory() -> None:
    learner = podnet()
    x, y = examples(learner.model, 3)
    feed(learner, x, y)
    theta = sum(t.nbytes for t in network().theta.values())
    assert learner.memory() == {"teacher": theta + learner.classes, "memory": 3 * (100 + 8)}


@pytest.mark.parametrize(("name", "value"), [("proxies", 0), ("spatial", -1.0), ("rate", 0.0), ("slots", 0)])
def test_bad_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} is {value:g}"):
        podnet(**{name: value})
