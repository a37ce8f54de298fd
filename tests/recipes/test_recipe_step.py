"""The step of a recipe beside torch's own optimisers and losses, on a tiny net."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol import optim
from kcciol.engine.graph import TRIALS, capture
from kcciol.recipes.config import RateConfig, Recipe
from kcciol.recipes.step import MOMENTUM, ClassVectors, RecipeStep, flatten_, moving, schedule
from kcciol.recipes.views import views_of
from tests.recipes.small import COLOUR, INK, RECIPES, changed, classes_for, step_of


def test_the_rate_rises_and_falls() -> None:
    config = RateConfig(steps=100, rate=0.5)
    rate, step, root = schedule(config).unbind(1)
    assert rate.argmax() == 4  # the fifth step of 100
    assert rate[0] == pytest.approx(0.1)
    assert rate[50] == pytest.approx(0.25)
    assert 0 < rate[-1] < 1e-3
    assert (rate[4:].diff() < 0).all()
    for t in (1, 7, 100):
        wanted = optim.corrections(1.0, t)
        assert (step[t - 1].item(), root[t - 1].item()) == pytest.approx(wanted, rel=1e-6)
    assert len(schedule(RateConfig(steps=1))) == TRIALS  # a graph is tried in more steps than there are


# --- the update -------------------------------------------------------------------------------------------------------


def torchs(step: RecipeStep) -> Callable[[], None]:
    """The same update by torch's optimisers; weight decay on what has more than one axis."""
    c, parameters = step.recipe.rate, list(step.net.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": c.decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(groups)
        if c.optimizer == "adam"
        else torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)
    )

    def update() -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(step.rates[int(step.step), 0])
        optimizer.step()

    return update


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("kind", RECIPES)
def test_the_update_is_torchs(kind: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """adam is AdamW: decay is the rate times the weights, apart from the moments, and eps is added to the corrected
    root. sgd is SGD with Nesterov's momentum: decay is part of the gradient, and nothing is damped."""
    recipe = changed(RECIPES[kind], rate__optimizer=optimizer, rate__decay=0.3)
    ours, other = step_of(recipe), step_of(recipe)
    monkeypatch.setattr(other, "_update", torchs(other))
    for _ in range(6):
        ours()
        other()
    assert torch.allclose(ours.Theta, other.Theta, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours.Theta, step_of(recipe).Theta, atol=1e-2)  # it has moved


def test_what_has_one_axis_does_not_decay() -> None:
    step = step_of(INK)
    assert int(step.decays.sum()) == sum(p.numel() for p in step.net.parameters() if p.ndim > 1)


@pytest.mark.parametrize("average", [0.0, 0.5, 0.999])
def test_the_average(average: float) -> None:
    """Each step keeps a share of the mean, less of it at first, so that the first weights soon count nothing."""
    step = step_of(changed(INK, rate__average=average))
    wanted, buffer = step.Theta.clone(), step.buffers[0].clone()
    for t in range(8):
        step()
        kept = min(average, (1 + t) / (10 + t))
        wanted, buffer = kept * wanted + (1 - kept) * step.Theta, kept * buffer + (1 - kept) * step.buffers[0]
    assert torch.allclose(step.average, wanted, atol=1e-6)
    assert torch.allclose(step.average_buffers[0], buffer, atol=1e-6)
    assert torch.equal(step.average, step.Theta) == (average == 0)


def test_the_encoder_has_the_averaged_weights() -> None:
    step = step_of(INK)
    for _ in range(3):
        step()
    found, before = step.encoder(), step.average.clone()
    assert not found.training
    weights = [p.permute(0, 2, 3, 1) if p.ndim == 4 else p for p in found.parameters()]  # as they lie in the vector
    wanted = before[: sum(p.numel() for p in weights)]
    assert torch.equal(torch.cat([p.flatten() for p in weights]), wanted)
    assert torch.equal(moving(found)[0], step.average_buffers[0])
    step()
    assert torch.equal(found.conv.weight.permute(0, 2, 3, 1).flatten(), before[: found.conv.weight.numel()])  # its own


def test_parameters_and_gradients_are_views_of_vectors() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 2))
    before = [p.detach().clone() for p in net.parameters()]
    vector, gradient, decays = flatten_(net)
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))
    net(torch.ones(4, 2, 3, 3)).sum().backward()
    assert gradient.norm() > 0
    vector.zero_()
    assert all(not p.any() for p in net.parameters())
    assert decays.sum() == 2 * 3 * 9 + 6
    assert next(net.parameters()).is_contiguous(memory_format=torch.channels_last)


# --- the loss ---------------------------------------------------------------------------------------------------------

Z = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(7) % 5


def classifier(recipe: Recipe) -> ClassVectors:
    return ClassVectors(recipe, 5)


def test_a_margin_is_taken_off_the_right_cosine() -> None:
    own = classifier(changed(INK, loss__scale=10.0, loss__margin=0.3))
    cosines = F.cosine_similarity(Z[:, None], own.weight[None], dim=2)
    logits = 10 * (cosines - 0.3 * (Y[:, None] == torch.arange(5)))
    assert own.loss(Z, Y).item() == pytest.approx(F.cross_entropy(logits, Y).item(), rel=1e-5)
    assert own.loss(5 * Z, Y).item() == pytest.approx(own.loss(Z, Y).item(), rel=1e-5)  # lengths do not count


def test_without_a_scale_it_is_a_linear_classifier() -> None:
    own = classifier(COLOUR)
    wanted = F.cross_entropy(Z @ own.weight.mT, Y, label_smoothing=0.1)
    assert own.loss(Z, Y).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_how_an_image_was_turned_is_a_second_task() -> None:
    plain, turned = step_of(changed(COLOUR, loss__turned=0.0)), step_of(COLOUR)
    keys = torch.arange(8)
    x, y = turned.views.draw(keys)
    for step in (plain, turned):
        step.net.eval()  # else the turned images would be part of the batch's means
    first = turned.loss(x, y, keys).item()
    assert first == pytest.approx(plain.loss(x, y, keys).item() + 0.5 * math.log(4), rel=1e-4)  # none is known yet


def test_bfloat16_on_a_cpu_is_near() -> None:
    losses = {}
    for precision in ("float32", "bf16"):
        step = step_of(changed(INK, engine__precision=precision))
        for _ in range(10):
            step()
        losses[precision] = step.metrics[:10, 0]
        assert step.Theta.dtype == torch.float32
    assert not torch.equal(losses["float32"], losses["bf16"])
    assert torch.allclose(losses["float32"], losses["bf16"], rtol=0.2)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def exact() -> Iterator[None]:
    from kcciol.engine.device import precision

    with precision("float32", torch.device("cuda")):
        yield


@pytest.mark.cuda
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("kind", RECIPES)
def test_a_graph_does_what_steps_do(kind: str) -> None:
    recipe, device = changed(RECIPES[kind], rate__steps=8), torch.device("cuda")
    found: list[Tensor] = []
    for graph in (False, True):
        step = RecipeStep(recipe, views_of(recipe, classes_for(recipe), device), 5, device)
        step.load_block(0, 0)
        execute = capture(step) if graph else step
        for _ in range(recipe.rate.steps):
            execute()
        found.append(torch.cat([step.Theta, step.average, step.metrics.flatten(), *step.buffers]).cpu())
        assert int(step.step) == recipe.rate.steps
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)
    assert torch.allclose(found[0][: len(step.Theta)], cpu_theta(recipe), rtol=1e-2, atol=1e-2)


def cpu_theta(recipe: Recipe) -> Tensor:
    step = step_of(recipe)
    for _ in range(recipe.rate.steps):
        step()
    return step.Theta


@pytest.mark.cuda
def test_a_run_shorter_than_the_trials_of_a_graph() -> None:
    recipe, device = changed(INK, rate__steps=1), torch.device("cuda")
    step = RecipeStep(recipe, views_of(recipe, classes_for(recipe), device), 5, device)
    capture(step)()
    assert int(step.step) == 1
    assert step.Theta.isfinite().all()
