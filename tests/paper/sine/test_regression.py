"""Sine functions: the data, the inner loop, and the meta-gradient against autograd on the plain definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from kcciol.paper.ensemble import Affine
from kcciol.paper.sine import adjoint, network
from kcciol.paper.sine.adjoint import Loops
from kcciol.paper.sine.functions import Functions, SineTrajectories, draw
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.outer import meta_gradient
from kcciol.paper.sine.settings import SineConfig, WidthConfig
from kcciol.random import keyed, keyed_uniform

SINE = SineConfig(functions=7, novel=6, slots=3, batches=2, batch=4, query=2, count=2)
NET = WidthConfig(width=6, features=8, theta=2, W=3)
SEEDS = torch.tensor([4, 9, 4])


def problem() -> tuple[RegressionNetwork, Tensor, SineTrajectories]:
    net = RegressionNetwork(NET, SINE.slots + 1)
    Theta = torch.stack([net.init(seed) for seed in (1, 2, 3)]).double()
    batch = draw(Functions.drawn(SEEDS, SINE.functions), SINE, SEEDS, torch.tensor(5), SINE.count)
    return net, Theta, SineTrajectories(*(t.double() for t in vars(batch).values()))


def test_numbers_are_uniform_and_depend_on_every_key() -> None:
    u = keyed_uniform(keyed(torch.arange(20), 3), 5000)
    assert 0 <= u.min() < u.max() < 1
    counts = torch.histc(u, 10, 0, 1) / u.numel()
    assert (counts - 0.1).abs().max() < 0.005
    assert len(set(u.flatten().tolist())) > 0.98 * u.numel()
    for other in (keyed(torch.arange(20), 4), keyed(torch.arange(20), 3, 0)):
        assert (keyed_uniform(other, 5000) == u).double().mean() < 1e-3
    pairs = torch.corrcoef(u[:, :200])
    assert (pairs - torch.eye(20)).abs().max() < 0.35


def test_a_trajectory_is_functions_in_sequence() -> None:
    functions = Functions.drawn(SEEDS, SINE.functions)
    batch = draw(functions, SINE, SEEDS, torch.tensor(5), SINE.count)
    assert batch.x.shape == (3, 2, 6, 4, 4)
    assert batch.x_query.shape == (3, 2, 6, 4)
    slot = batch.x[..., :3].argmax(-1)
    assert torch.equal(slot, torch.arange(6).div(2, rounding_mode="floor")[:, None].expand(3, 2, 6, 4))
    assert bool((batch.x[..., :3].sum(-1) == 1).all())
    assert bool((batch.x[..., 3].abs() <= 5).all())
    for member in range(3):
        for trajectory in range(2):
            used = set()
            for s in range(3):
                z, y = (
                    batch.x[member, trajectory, 2 * s : 2 * s + 2, :, 3],
                    batch.y[member, trajectory, 2 * s : 2 * s + 2],
                )
                every = functions.amplitude[member, :, None] * torch.sin(z.flatten() + functions.phase[member, :, None])
                gaps = (every - y.flatten()).abs().amax(1)
                assert gaps.min() < 1e-5
                used.add(int(gaps.argmin()))
                asked = batch.x_query[member, trajectory, 2 * s : 2 * s + 2]
                f = int(gaps.argmin())
                expected = functions.amplitude[member, f] * torch.sin(asked[:, 3] + functions.phase[member, f])
                torch.testing.assert_close(batch.y_query[member, trajectory, 2 * s : 2 * s + 2], expected)
            assert len(used) == 3
    assert torch.equal(batch.x[0], batch.x[2])  # the same seed
    assert not torch.equal(batch.x[0], batch.x[1])
    assert not torch.equal(batch.x[0, 0], batch.x[0, 1])
    later = draw(functions, SINE, SEEDS, torch.tensor(6), SINE.count)
    assert not torch.equal(batch.x, later.x)
    novel = Functions.drawn(SEEDS, SINE.functions, novel=True)
    assert not torch.equal(novel.phase, functions.phase)
    assert functions.amplitude.min() >= 0.1
    assert functions.amplitude.max() <= 5.1 + 1e-6
    assert functions.phase.max() <= math.pi + 1e-6


class Reference(torch.nn.Module):
    """The same network as a module, for one member."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.ModuleList([torch.nn.Linear(4, 6), torch.nn.Linear(6, 8)])
        self.W = torch.nn.ModuleList([torch.nn.Linear(8, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 1)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.theta:
            x = layer(x).relu()
        for layer in self.W[:-1]:
            x = layer(x).relu()
        return self.W[-1](x)[..., 0]  # type: ignore[no-any-return]


def reference_loss(
    parameters: dict[str, Tensor],
    batch: SineTrajectories,
    member: int,
    alpha: float,
    order: str,
    shares: tuple[float, ...],
) -> Tensor:
    """l_meta of one member by autograd alone: SGD on W with create_graph. shares: what each function's end counts."""
    module, total = Reference().double(), torch.zeros((), dtype=torch.float64)
    for r in range(SINE.count):
        fast = dict(parameters)
        for t in range(batch.x.shape[2]):
            loss = (functional_call(module, fast, (batch.x[member, r, t],)) - batch.y[member, r, t]).square().mean()
            names = [n for n in fast if n.startswith("W.")]
            grads = torch.autograd.grad(loss, [fast[n] for n in names], create_graph=True)
            if order == "first":
                grads = tuple(g.detach() for g in grads)
            fast |= {n: fast[n] - alpha * g for n, g in zip(names, grads, strict=True)}
            function, batches = divmod(t + 1, SINE.batches)
            if batches == 0:
                seen = function * SINE.query
                answers = functional_call(module, fast, (batch.x_query[member, r, :seen],))
                error = (answers - batch.y_query[member, r, :seen]).square().mean()
                total = total + shares[function - 1] * error / SINE.count
    return total


END = (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("order", "constraint"), [("first", "first"), ("exact", "first"), ("exact", "exact")])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("shares", [None, (END, (1 / 3, 1 / 3, 1 / 3), (0.5, 0.0, 0.5))])
def test_the_meta_gradient_is_that_of_the_definition(
    order: Any, constraint: Any, constrained: bool, shares: Any
) -> None:
    net, Theta, batch = problem()
    alpha, lam = torch.tensor([0.05, 0.02, 0.1]).double(), torch.tensor([0.3, 0.0, 2.0]).double()
    mask = (Theta.abs() > Theta.abs().median()).double()
    extra: dict[str, Any] = {"mask": mask, "lam": lam, "constraint": constraint} if constrained else {}
    extra |= {} if shares is None else {"shares": torch.tensor(shares, dtype=torch.float64)}
    found = meta_gradient(net, Theta, batch, alpha, order, **extra)
    for member in range(3):
        leaves = {n: v.clone().requires_grad_() for n, v in net.layout.views(Theta[member]).items()}
        rest = batch, member, float(alpha[member])
        loss = reference_loss(leaves, *rest, order, shares[member] if shares else END)
        grads = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
        torch.testing.assert_close(found.loss[member], loss.detach(), rtol=1e-10, atol=0)
        if constrained:
            masks = net.layout.views(mask[member])
            other = reference_loss(leaves, *rest, constraint, shares[member] if shares else END)
            held = torch.autograd.grad(other, list(leaves.values()), create_graph=True)
            penalty = sum((((g * m) ** 2).sum() for g, m in zip(held, masks.values(), strict=True)), torch.zeros(()))
            more = torch.autograd.grad(lam[member] * penalty, list(leaves.values()), allow_unused=True)
            grads = tuple(g + (0 if m is None else m) for g, m in zip(grads, more, strict=True))
            torch.testing.assert_close(found.constraint[member], penalty.detach(), rtol=1e-9, atol=0)
        views = net.layout.views(found.gradient[member])
        for name, g in zip(leaves, grads, strict=True):
            torch.testing.assert_close(views[name], g.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("order", ["first", "exact"])
@pytest.mark.parametrize("shares", [None, (END, (1 / 3, 1 / 3, 1 / 3), (0.5, 0.0, 0.5))])
def test_trajectories_that_blow_up_are_left_out(order: Any, shares: Any) -> None:
    net, Theta, batch = problem()
    alpha = torch.tensor([0.05, 1e30, 0.1]).double()
    rows = None if shares is None else torch.tensor(shares, dtype=torch.float64)
    first = None if rows is None else rows[:1]
    found = meta_gradient(net, Theta, batch, alpha, order, shares=rows)
    assert found.diverged.tolist() == [0, 2, 0]
    assert bool(found.gradient.isfinite().all())
    assert bool((found.gradient[1] == 0).all())
    one_of = SineTrajectories(*(t[:1] for t in vars(batch).values()))
    alone = meta_gradient(net, Theta[:1], one_of, alpha[:1], order, shares=first)
    torch.testing.assert_close(found.gradient[0], alone.gradient[0])
    one = batch.y.clone()
    one[0, 1] = 1e200  # of the first member, one of two
    changed = SineTrajectories(batch.x, one, batch.x_query, batch.y_query, batch.chosen)
    half = meta_gradient(net, Theta, changed, alpha, order, shares=rows)
    assert half.diverged.tolist() == [1, 2, 0]
    kept = SineTrajectories(*(t[:1, :1] for t in vars(batch).values()))
    expected = meta_gradient(net, Theta[:1], kept, alpha[:1], order, shares=first)
    assert bool((expected.gradient != 0).any())
    torch.testing.assert_close(half.gradient[0], expected.gradient[0])


@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("sizes", [(12, 1), (12, 10, 1), (12, 10, 9, 1)])
def test_the_way_back_has_the_derivative_of_the_way_there(sizes: tuple[int, ...], times: int) -> None:
    torch.manual_seed(0)
    kind: dict[str, Any] = {"dtype": torch.float64, "requires_grad": True}
    pairs = itertools.pairwise(sizes)
    W = [(torch.randn(3, o, i, **kind) / i**0.5, torch.randn(3, o, **kind)) for i, o in pairs]
    z, y = torch.randn(3, 8, 8, 12, **kind).relu(), torch.randn(3, 8, 8, dtype=torch.float64)
    alpha = torch.tensor([0.003, 0.03, 0.3], dtype=torch.float64)[:, None, None]
    asked = torch.randn(3, 20, 12, dtype=torch.float64)
    leaves = [z, *(t for layer in W for t in layer)]
    lost = torch.zeros(3, dtype=torch.bool)
    plain = network.stages(network.learn, W, z, y, alpha, times)
    other = adjoint.learn(W, z, y, alpha, times, lost)

    def asking(learned: list[Affine]) -> Any:
        errors = [network.predict([(w[i], b[i]) for w, b in learned], asked).square().mean() for i in range(times)]
        return torch.autograd.grad(sum((i + 1) * error for i, error in enumerate(errors)), leaves)  # type: ignore[arg-type]

    grads, others = asking(plain), asking(other)
    assert not bool(lost.any())
    for (w, b), (w2, b2) in zip(plain, other, strict=True):
        torch.testing.assert_close(w, w2, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(b, b2, rtol=1e-12, atol=1e-12)
    for g, g2 in zip(grads, others, strict=True):
        assert bool((g != 0).any())
        torch.testing.assert_close(g, g2, rtol=1e-9, atol=1e-11)


def test_a_derivative_that_overflows_is_left_out_and_counted() -> None:
    net, Theta, batch = problem()
    alpha = torch.tensor([0.05, 0.02, 0.1])
    Theta, batch = (
        Theta.float(),
        SineTrajectories(*(t.float() if t.is_floating_point() else t for t in vars(batch).values())),
    )
    there = adjoint.PLAIN.there

    def back(*inputs: Any) -> Any:
        to_z, start = adjoint.PLAIN.back(*inputs)
        to_z[3] = torch.inf  # of the second member, the second trajectory
        return to_z, start

    def through(W: Any, z: Tensor, y: Tensor, rates: Tensor, times: int, lost: Tensor) -> Any:
        return adjoint.learn(W, z, y, rates, times, lost, adjoint.Way(there, back))

    found = meta_gradient(net, Theta, batch, alpha, "exact", loops=Loops(network.learn, through))
    assert found.diverged.tolist() == [0, 1, 0]
    assert bool(found.gradient.isfinite().all())
    plain = meta_gradient(net, Theta, batch, alpha, "exact")
    assert plain.diverged.tolist() == [0, 0, 0]
    assert torch.equal(found.gradient[0], plain.gradient[0])
    assert bool((found.gradient[1] != 0).any())  # what is left of it
    assert not torch.equal(found.gradient[1], plain.gradient[1])


def test_learning_is_one_step_after_another() -> None:
    net, Theta, batch = problem()
    W = net.layers(Theta, "W")
    z = network.represent(net.layers(Theta, "theta"), batch.x[:, 0].flatten(1, 2)).view(3, 6, 4, -1)
    alpha = torch.full((3, 1, 1), 0.05, dtype=torch.float64)
    at_once = network.learn(W, z, batch.y[:, 0], alpha)
    first = network.learn(W, z[:, :2], batch.y[:, 0, :2], alpha)
    then = network.learn(first, z[:, 2:], batch.y[:, 0, 2:], alpha)
    for (w, b), (w2, b2) in zip(at_once, then, strict=True):
        assert torch.equal(w, w2)
        assert torch.equal(b, b2)
