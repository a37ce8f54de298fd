"""The conditional GAN: its meta-gradient against autograd on the plain definition, training, evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import EngineConfig, PhaseConfig
from kcciol.data.classset import ClassSet
from kcciol.errors import UserError
from kcciol.generation.evaluate import evaluate
from kcciol.generation.network import Networks
from kcciol.generation.outer import Batch, learn, losses, meta_gradient
from kcciol.generation.settings import GanConfig, GenerationConfig, TrajectoryConfig
from kcciol.generation.step import Images, draw, normal
from kcciol.generation.train import load, train
from kcciol.together.noise import keyed

GAN = GanConfig(noise=3, labels=4, generator=(6, 5), critic=(7, 6))
TINY = GenerationConfig(
    seed=3,
    gan=GAN,
    trajectory=TrajectoryConfig(support=3, query=2, remember=3, count=2),
    phase1=PhaseConfig(steps=6, alpha=0.1, beta=1e-3),
    phase2=PhaseConfig(steps=2, alpha=0.1, beta=1e-3, gamma=1e-3),
    phase3=PhaseConfig(steps=3, alpha=0.1, beta=1e-3, lam=1e-2),
    engine=EngineConfig(device="cpu", checkpoint_every=4, log_every=2),
)


def digits(classes: int = 3) -> ClassSet:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (classes, 9, 1, 4, 4), generator=random, dtype=torch.uint8)
    return ClassSet(images, torch.tensor([9, 7, 8][:classes]), tuple(str(c) for c in range(classes)))


def problem() -> tuple[Networks, Tensor, Batch]:
    nets = Networks(GAN, 16)
    Theta = torch.stack([nets.init(s) for s in (1, 2)]).double()
    images = Images.of(digits(), [0, 2, 3], "cpu")
    batch = draw(images, TINY.trajectory, GAN.noise, torch.tensor([4, 9]), torch.tensor(5))
    cast = {k: v.double() if v.is_floating_point() else v for k, v in vars(batch).items()}
    return nets, Theta, Batch(**cast)


def plain(views: dict[str, Tensor], name: str, x: Tensor, label: Tensor, last: tuple[Tensor, Tensor]) -> Tensor:
    """One network on one input, layer by layer."""
    a = torch.cat([x, F.one_hot(label, GAN.labels).to(x.dtype)], -1)
    for i in range(2):
        a = F.leaky_relu(a @ views[f"theta.{name}.{i}.weight"].T + views[f"theta.{name}.{i}.bias"], GAN.slope)
    return a @ last[0].T + last[1]


Last = tuple[Tensor, Tensor]


def after_learning(still: dict[str, Tensor], batch: Batch, member: int, r: int, alpha: float) -> dict[str, Last]:
    """What SGD adds to both last layers, image by image."""
    start = {n: (still[f"W.{n}.2.weight"], still[f"W.{n}.2.bias"]) for n in ("G", "D")}
    now = dict(start)
    for j in range(3):
        g, d = ((now[n][0].detach().requires_grad_(), now[n][1].detach().requires_grad_()) for n in ("G", "D"))
        y, real = batch.y[member, r, j], batch.x[member, r, j]
        fake = plain(still, "G", batch.noise[member, r, j], y, g).tanh()
        gap = plain(still, "D", fake.detach(), y, d) - plain(still, "D", real, y, d)
        down = torch.autograd.grad(gap.sum(), d)
        up = torch.autograd.grad(-plain(still, "D", fake, y, now["D"]).sum(), g)
        now = {
            "G": (now["G"][0] - alpha * up[0], now["G"][1] - alpha * up[1]),
            "D": (now["D"][0] - alpha * down[0], now["D"][1] - alpha * down[1]),
        }
    return {n: (now[n][0] - start[n][0], now[n][1] - start[n][1]) for n in now}


def reference(nets: Networks, leaf: Tensor, batch: Batch, member: int, alpha: float) -> Tensor:
    """What is descended on, by autograd and loops alone; each network's loss moves that network only."""
    views = nets.layout.views(leaf)
    still = {n: v.detach() for n, v in views.items()}
    parts = []
    for r in range(2):
        change = after_learning(still, batch, member, r, alpha)
        G, D = (
            (views[f"W.{n}.2.weight"] + change[n][0].detach(), views[f"W.{n}.2.bias"] + change[n][1].detach())
            for n in ("G", "D")
        )
        y, real = batch.y_query[member, r], batch.x_query[member, r]
        fake = plain(views, "G", batch.noise_query[member, r], y, G).tanh()
        share = batch.between[member, r][:, None]
        middle = (share * real + (1 - share) * fake.detach()).requires_grad_()
        (slopes,) = torch.autograd.grad(plain(views, "D", middle, y, D).sum(), middle, create_graph=True)
        penalty = ((slopes.square().sum(-1) + 1e-12).sqrt() - 1).square().mean()
        gap = (plain(views, "D", fake.detach(), y, D) - plain(views, "D", real, y, D)).mean()
        lifted = plain(still, "D", fake, y, (D[0].detach(), D[1].detach())).mean()
        parts.append(gap + GAN.penalty * penalty - lifted)
    return torch.stack(parts).mean()


@pytest.mark.parametrize("constrained", [False, True])
def test_the_meta_gradient_is_that_of_the_definition(constrained: bool) -> None:
    nets, Theta, batch = problem()
    alpha, lam = torch.tensor([0.1, 0.3]).double(), torch.tensor([0.2, 0.5]).double()
    mask = (Theta.abs() > Theta.abs().median()).double()
    extra: dict[str, Any] = {"mask": mask, "lam": lam} if constrained else {}
    found = meta_gradient(nets, Theta, batch, alpha, **extra)
    for member in range(2):
        leaf = Theta[member].clone().requires_grad_()
        loss = reference(nets, leaf, batch, member, float(alpha[member]))
        (g,) = torch.autograd.grad(loss, leaf, create_graph=True)
        if constrained:
            penalty = (g * mask[member]).square().sum()
            (more,) = torch.autograd.grad(lam[member] * penalty, leaf)
            torch.testing.assert_close(found.constraint[member], penalty.detach(), rtol=1e-8, atol=0)
            g = g + more
        torch.testing.assert_close(found.gradient[member], g.detach(), rtol=1e-7, atol=1e-9)


def test_each_loss_moves_its_own_network() -> None:
    nets, Theta, batch = problem()
    leaf = Theta.clone().requires_grad_()
    changes = learn(nets, Theta, batch, torch.tensor([0.1, 0.1]).double())
    critic, penalty, generator = losses(nets, leaf, batch, changes)
    for loss, still in ((critic + penalty, "G"), (generator, "D")):
        (g,) = torch.autograd.grad(loss.sum(), leaf, retain_graph=True)
        for name, view in nets.layout.views(g[0]).items():
            if name != "W.D.2.bias":  # which cancels in D(generated) - D(real)
                assert bool((view == 0).all()) == (f".{still}." in name), name


def test_images_of_a_trajectory_are_of_one_class_and_those_to_remember_of_any() -> None:
    data = digits()
    images = Images.of(data, [0, 2, 3], "cpu")
    config = TrajectoryConfig(support=3, query=2, remember=40, count=30)
    batch = draw(images, config, 3, torch.tensor([4, 4]), torch.tensor(5))
    assert torch.equal(batch.x[0], batch.x[1])
    own = torch.cat([batch.y, batch.y_query[..., :2]], -1)
    assert bool((own == own[..., :1]).all())
    assert set(batch.y_query[..., 2:].flatten().tolist()) == {0, 2, 3}
    pool = {0: data.images[0], 2: data.images[1, :7], 3: data.images[2, :8]}
    for r in range(5):
        for j in range(42):
            shown = pool[int(batch.y_query[0, r, j])].flatten(1).float() / 127.5 - 1
            assert bool((shown == batch.x_query[0, r, j]).all(-1).any())
    assert abs(float(normal(keyed(torch.tensor(1)), 20000).std()) - 1) < 0.03


def test_members_train_together_and_resume(tmp_path: Path) -> None:
    other = replace(TINY, seed=8, phase3=replace(TINY.phase3, lam=0.0))
    both = train([TINY, other], digits(), [0, 2, 3], tmp_path / "both", quiet=True)
    alone = train([TINY], digits(), [0, 2, 3], tmp_path / "alone", quiet=True)
    torch.testing.assert_close(both[0], alone[0], rtol=1e-3, atol=1e-5)
    assert torch.equal(train([TINY, other], digits(), [0, 2, 3], tmp_path / "both", resume=True, quiet=True), both)
    members, state = load(digits(), [0, 2, 3], tmp_path / "both" / "phase2.safetensors")
    assert members == [TINY, other]
    assert state.phase == 2
    with pytest.raises(UserError, match="3 base classes, but 2 labels"):
        train([TINY], digits(), [0, 2], tmp_path / "wrong", quiet=True)
    with pytest.raises(UserError, match="every size"):
        GanConfig(generator=())


def test_novel_classes_are_learned_by_the_last_layers() -> None:
    nets = Networks(GAN, 16)
    Theta = nets.init(0)
    made = evaluate(nets, Theta, digits(2), [1, 3], seed=5, rate=1e-2, batches=2, batch=3, shown=4)
    assert [len(images) for images in made.images] == [1, 2]
    assert made.images[1][0].shape == (4, 16)
    assert bool((made.images[1][1].abs() <= 1).all())
    still = evaluate(nets, Theta, digits(2), [1, 3], seed=5, rate=0.0, batches=2, batch=3, shown=4)
    assert torch.equal(still.images[0][0], still.images[1][0])  # nothing was learned or forgotten
    assert not torch.equal(made.images[0][0], made.images[1][0])
