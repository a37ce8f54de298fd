"""Algorithm 2 on any network: by autograd, what the hand-written path computes, and what differences say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.config import GIVEN, Config, GradientOrder, NetConfig
from kcciol.data.classset import Splits
from kcciol.engine.ranks import Mean
from kcciol.meta.autograd import autograd_meta_gradient
from kcciol.meta.inner import Inner, Plain, TrajectoryLabels
from kcciol.meta.lowrank import HiddenLowRank, LinearLowRank
from kcciol.meta.mask import get_mask
from kcciol.meta.outer import MetaGradient, meta_gradient
from kcciol.meta.step import MetaStep
from kcciol.nets.classification import Classification
from kcciol.nets.module import ModuleEncoder
from tests.meta.test_equality import ALPHA, CASES, LAMBDA, case, relative
from tests.meta.test_ranks import case as ranks_case
from tests.meta.test_ranks import share, threads
from tests.nets import networks

IMAGE, CLASSES = (1, 12, 11), 13


def as_module(problem: Classification) -> Classification:
    """The same network as a module, with the same Theta."""
    shape = problem.encoder.image_shape
    found = Classification(NetConfig(hidden=problem.head.hidden), shape, CLASSES, networks.Paper(shape))
    assert found.layout == problem.layout
    return found


@pytest.mark.parametrize("order", ["first", "exact"])
@pytest.mark.parametrize(("hidden", "classes", "trajectories"), CASES)
def test_the_papers_net_as_a_module_has_the_gradients_that_are_written_out(
    order: GradientOrder, hidden: int, classes: int, trajectories: int
) -> None:
    problem, Theta, images, y = case(hidden, classes, trajectories)
    module, rows = as_module(problem), problem.encoder.rows(images)
    mask, kept = (torch.rand_like(Theta) > 0.5).double(), (torch.rand(len(rows), problem.head.features) > 0.2).double()
    lowrank: type[Inner] = HiddenLowRank if hidden else LinearLowRank
    one = meta_gradient(problem, Theta, rows, y, lowrank(problem.head, ALPHA, order), kept=kept)
    three = meta_gradient(problem, Theta, rows, y, lowrank(problem.head, ALPHA, order), mask, LAMBDA, kept=kept)
    assert one.constraint is None
    assert three.constraint is not None
    assert three.share is not None
    for kind in (Plain, lowrank):
        inner, rows = kind(problem.head, ALPHA, order), module.encoder.rows(images)
        same = autograd_meta_gradient(module, inner, Theta, rows, y, kept=kept)
        assert same.constraint is None
        assert relative(same.loss, one.loss) < 1e-12
        assert relative(same.gradient, one.gradient) < 1e-10
        held = autograd_meta_gradient(module, inner, Theta, rows, y, mask, LAMBDA, kept)
        assert held.constraint is not None
        assert held.share is not None
        assert relative(held.constraint, three.constraint) < 1e-10
        assert relative(held.gradient - same.gradient, three.gradient - one.gradient) < 1e-8
        assert relative(held.share, three.share) < 1e-8


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("order", ["first", "exact"])
@pytest.mark.parametrize("reset", ["none", "draw", "zero", "all"])
def test_steps_of_each_phase_with_each_reset_go_the_same_way(
    tiny: Config, tiny_data: Splits, number: int, order: Any, reset: Any
) -> None:
    config = dataclasses.replace(tiny, meta=dataclasses.replace(tiny.meta, order=order, reset=reset))
    found = []
    for module in (None, networks.Paper(tiny_data.base.image_shape, tiny.net.channels, tiny.net.strides)):
        problem = Classification(tiny.net, tiny_data.base.image_shape, len(tiny_data.base), module)
        Theta = Classification(tiny.net, tiny_data.base.image_shape, len(tiny_data.base)).init(0).double()
        phase = config.phases[number - 1]
        mask = get_mask(problem.layout, Theta, config.mask) if phase.lam else None
        step = MetaStep(problem, tiny_data.base, config, phase, number, Theta, mask)
        step.precision = torch.float64
        step.load_block(0, 0)
        before = Theta.clone()
        for _ in range(4):
            step()
        found.append((Theta, step.metrics[:4]))
        assert not torch.equal(Theta, before)
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)  # float32


def of_differences(factory: Any) -> tuple[Classification, Tensor, Tensor, TrajectoryLabels]:
    torch.manual_seed(5)
    problem = Classification(NetConfig(), IMAGE, CLASSES, factory(IMAGE))
    assert isinstance(problem.encoder, ModuleEncoder)
    Theta = problem.init(0)
    for name, buffer in problem.encoder.buffers.items():
        problem.encoder.buffers[name] = buffer.double() if buffer.is_floating_point() else buffer
    noise = problem.layout.pack(problem.layout.views(torch.randn(problem.layout.length)))
    y = TrajectoryLabels(torch.tensor([[1, 1, 2, 2]]), torch.tensor([[1, 2, 3, 4, 5, 6]]))
    images = torch.randint(0, 256, (10, *IMAGE), dtype=torch.uint8)
    return problem, (Theta + 0.1 * noise).double(), problem.encoder.rows(images), y


@pytest.mark.parametrize("factory", [networks.batch, networks.group, networks.Paper])
def test_the_gradients_of_any_network_are_those_of_differences(factory: Any) -> None:
    problem, Theta, rows, y = of_differences(factory)
    mask = problem.layout.pack({n: (torch.rand(s) > 0.4).double() for n, s in problem.layout.shapes.items()}, Theta)

    def at(Theta: Tensor, lam: float = 1.0) -> MetaGradient:
        return autograd_meta_gradient(problem, LinearLowRank(problem.head, ALPHA, "exact"), Theta, rows, y, mask, lam)

    g, both = at(Theta, 0).gradient, at(Theta)
    assert both.constraint is not None
    torch.testing.assert_close(both.constraint, (mask * g).square().sum())
    for _ in range(4):
        along = problem.layout.pack(problem.layout.views(torch.randn_like(Theta)), Theta)
        above, below = (at(Theta + sign * 1e-6 * along) for sign in (1, -1))
        assert above.constraint is not None
        assert below.constraint is not None
        assert float(g @ along) == pytest.approx(float(above.loss - below.loss) / 2e-6, rel=1e-5, abs=1e-8)
        slope = float(above.constraint - below.constraint) / 2e-6
        assert float((both.gradient - g) @ along) == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_batch_normalisation_mixes_the_images_of_a_step_and_group_normalisation_does_not() -> None:
    alone = {}
    for factory in (networks.batch, networks.group):
        problem, Theta, rows, _ = of_differences(factory)
        for training in (True, False):
            theta, apply = problem.theta(Theta), problem.encoder.apply
            together, few = (apply(theta, some, Theta.dtype, training) for some in (rows, rows[:4]))
            alone[factory.__name__, training] = torch.allclose(together[:4], few)
    assert alone == {
        ("batch", True): False,
        ("batch", False): True,
        ("group", True): True,
        ("group", False): True,
    }


def test_a_parameter_that_is_not_used_has_no_gradient() -> None:
    net = networks.group(IMAGE)
    net.extra = torch.nn.Linear(3, 2)
    problem = Classification(NetConfig(), IMAGE, CLASSES, net)
    _, _, rows, y = of_differences(networks.group)
    Theta = problem.init(0).double()
    inner = LinearLowRank(problem.head, ALPHA, "first")
    result = autograd_meta_gradient(problem, inner, Theta, rows, y, torch.ones_like(Theta), LAMBDA)
    assert float(problem.theta(result.gradient)["extra.weight"].abs().max()) == 0
    assert bool(result.gradient.isfinite().all())


@pytest.mark.parametrize("order", ["first", "exact"])
def test_a_split_step_is_the_whole_step(order: GradientOrder) -> None:
    problem, Theta, rows, y = ranks_case(0, 4, 6)
    mask = (torch.rand_like(Theta) > 0.5).double()

    def work(rows: Tensor, y: TrajectoryLabels, mean: Mean) -> MetaGradient:
        inner = LinearLowRank(problem.head, 0.3, order)
        return autograd_meta_gradient(problem, inner, Theta, rows, y, mask, 0.7, mean=mean)

    whole = work(rows, y, lambda x: x)
    for part in threads(2, lambda rank, mean: work(*share(rows, y, rank, 2), mean)):
        for name in ("loss", "gradient", "constraint", "share"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name), rtol=1e-10, atol=1e-12)


def test_what_only_the_papers_net_can_do_is_refused(tiny: Config) -> None:
    net = dataclasses.replace(tiny.net, module=GIVEN)
    quick = dataclasses.replace(tiny.phase3, lam=0.0)
    with pytest.raises(Exception, match=r"meta\.adapts is 'net', but must be 'W' with a net\.module"):
        dataclasses.replace(tiny, net=net, phase3=quick, meta=dataclasses.replace(tiny.meta, adapts="net"))
    with pytest.raises(Exception, match=r"net\.gate is 4, but must be 0 with a net\.module"):
        dataclasses.replace(net, gate=4)
