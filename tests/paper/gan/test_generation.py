"""The conditional GAN: its meta-gradient against autograd on the plain definition, training, evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import EngineConfig, PhaseConfig
from kcciol.data.classset import ClassSet
from kcciol.errors import UserError
from kcciol.paper.gan.digits import evaluate
from kcciol.paper.gan.network import Networks
from kcciol.paper.gan.outer import DigitTrajectories, learn, losses, meta_gradient
from kcciol.paper.gan.settings import DigitTrajectoryConfig, GanConfig, GenerationConfig
from kcciol.paper.gan.train import DigitImages, draw, load_digits, train_digits
from kcciol.random import keyed, keyed_normal

GAN = GanConfig(noise=3, labels=4, generator=(6, 5), critic=(7, 6))
TINY = GenerationConfig(
    seed=3,
    gan=GAN,
    trajectory=DigitTrajectoryConfig(support=3, query=2, remember=3, count=2),
    phase1=PhaseConfig(steps=6, alpha=0.1, beta=1e-3),
    phase2=PhaseConfig(steps=2, alpha=0.1, beta=1e-3, gamma=1e-3),
    phase3=PhaseConfig(steps=3, alpha=0.1, beta=1e-3, lam=1e-2),
    engine=EngineConfig(device="cpu", checkpoint_every=4, log_every=2),
)


def digits(classes: int = 3) -> ClassSet:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (classes, 9, 1, 4, 4), generator=random, dtype=torch.uint8)
    return ClassSet(images, torch.tensor([9, 7, 8][:classes]), tuple(str(c) for c in range(classes)))


def problem() -> tuple[Networks, Tensor, DigitTrajectories]:
    nets = Networks(GAN, 16)
    Theta = torch.stack([nets.init(s) for s in (1, 2)]).double()
    images = DigitImages.of(digits(), [0, 2, 3], "cpu")
    batch = draw(images, TINY.trajectory, GAN.noise, torch.tensor([4, 9]), torch.tensor(5))
    cast = {k: v.double() if v.is_floating_point() else v for k, v in vars(batch).items()}
    return nets, Theta, DigitTrajectories(**cast)


W = tuple[Tensor, Tensor, Tensor]


def plain(views: dict[str, Tensor], name: str, x: Tensor, label: Tensor, head: W) -> Tensor:
    """One network on one input or several, layer by layer: the label as a one-hot input of some strength."""
    first = torch.cat([views[f"theta.{name}.0.weight"], head[2].T], -1)
    a = torch.cat([x, GAN.strength * F.one_hot(label, GAN.labels).to(x.dtype)], -1)
    a = F.leaky_relu(a @ first.T + views[f"theta.{name}.0.bias"], GAN.slope)
    a = F.leaky_relu(a @ views[f"theta.{name}.1.weight"].T + views[f"theta.{name}.1.bias"], GAN.slope)
    return a @ head[0].T + head[1]


def head_of(views: dict[str, Tensor], name: str) -> W:
    return views[f"W.{name}.weight"], views[f"W.{name}.bias"], views[f"W.{name}.labels"]


def after_learning(
    still: dict[str, Tensor], batch: DigitTrajectories, member: int, r: int, alpha: float
) -> dict[str, W]:
    """What SGD adds to W of both networks, image by image."""
    start = {n: head_of(still, n) for n in ("G", "D")}
    now = dict(start)
    for j in range(3):
        g, d = (tuple(t.detach().requires_grad_() for t in now[n]) for n in ("G", "D"))
        y, real = batch.y[member, r, j], batch.x[member, r, j]
        fake = plain(still, "G", batch.noise[member, r, j], y, g).tanh()  # type: ignore[arg-type]
        gap = plain(still, "D", fake.detach(), y, d) - plain(still, "D", real, y, d)  # type: ignore[arg-type]
        down = torch.autograd.grad(gap.sum(), d)
        up = torch.autograd.grad(-plain(still, "D", fake, y, now["D"]).sum(), g)
        moved = {"G": zip(now["G"], up, strict=True), "D": zip(now["D"], down, strict=True)}
        now = {n: tuple(a - alpha * b for a, b in pairs) for n, pairs in moved.items()}  # type: ignore[misc]
    return {n: tuple(a - b for a, b in zip(now[n], start[n], strict=True)) for n in now}  # type: ignore[misc]


def reference(
    nets: Networks, Theta: Tensor, batch: DigitTrajectories, member: int, changes: list[dict[str, W]]
) -> Tensor:
    """The meta-gradient (length,) of one member, by autograd and loops alone, with what the inner loop changed given:
    the critic's loss in D's parameters, the generator's in G's."""
    leaf = Theta.clone().requires_grad_()
    views = nets.layout.views(leaf)
    down, up = [], []
    for r, change in enumerate(changes):
        G, D = (tuple(a + b for a, b in zip(head_of(views, n), change[n], strict=True)) for n in ("G", "D"))
        y, real = batch.y_query[member, r], batch.x_query[member, r]
        fake = plain(views, "G", batch.noise_query[member, r], y, G).tanh()  # type: ignore[arg-type]
        share = batch.between[member, r][:, None]
        middle = (share * real + (1 - share) * fake.detach()).requires_grad_()
        answers = plain(views, "D", middle, y, D)  # type: ignore[arg-type]
        (slopes,) = torch.autograd.grad(answers.sum(), middle, create_graph=True)
        penalty = ((slopes.square().sum(-1) + 1e-12).sqrt() - 1).square().mean()
        lifted = plain(views, "D", fake, y, D).mean()  # type: ignore[arg-type]
        down.append(lifted - plain(views, "D", real, y, D).mean() + GAN.penalty * penalty)  # type: ignore[arg-type]
        up.append(-lifted)
    (in_D,) = torch.autograd.grad(torch.stack(down).mean(), leaf, retain_graph=True)
    (in_G,) = torch.autograd.grad(torch.stack(up).mean(), leaf)
    critic = torch.zeros_like(Theta)
    for name, view in nets.layout.views(critic).items():
        view.fill_(".D." in name)
    return torch.where(critic > 0, in_D, in_G)


def changes_of(
    nets: Networks, Theta: Tensor, batch: DigitTrajectories, member: int, alpha: float
) -> list[dict[str, W]]:
    return [after_learning(nets.layout.views(Theta), batch, member, r, alpha) for r in range(2)]


def test_the_meta_gradient_is_that_of_the_definition() -> None:
    nets, Theta, batch = problem()
    alpha = torch.tensor([0.1, 0.3]).double()
    found = meta_gradient(nets, Theta, batch, alpha)
    for member in range(2):
        changes = changes_of(nets, Theta[member], batch, member, float(alpha[member]))
        wanted = reference(nets, Theta[member], batch, member, changes)
        torch.testing.assert_close(found.gradient[member], wanted, rtol=1e-7, atol=1e-9)


def test_the_constraint_is_differentiated_through_both_networks() -> None:
    """By finite differences of |mask * g|^2, whose parts of one network depend on the other's parameters."""
    nets, Theta, batch = problem()
    alpha, lam = torch.tensor([0.1, 0.3]).double(), torch.tensor([0.2, 0.5]).double()
    mask = (Theta.abs() > Theta.abs().median()).double()
    free, held = (meta_gradient(nets, Theta, batch, alpha, *extra) for extra in ((), (mask, lam)))
    random = torch.Generator().manual_seed(1)
    for member in range(2):
        changes = changes_of(nets, Theta[member], batch, member, float(alpha[member]))

        def constraint(at: Tensor, member: int = member, changes: list[dict[str, W]] = changes) -> Tensor:
            return (mask[member] * reference(nets, at, batch, member, changes)).square().sum()

        torch.testing.assert_close(held.constraint[member], constraint(Theta[member]), rtol=1e-7, atol=0)
        pull = (held.gradient - free.gradient)[member]
        for name in ("theta.G", "theta.D", "W.G", "W.D"):
            along = torch.randn(Theta.shape[1], generator=random).double()
            for key, view in nets.layout.views(along).items():
                if not key.startswith(name):
                    view.zero_()
            step = 1e-6 * along / along.norm()
            slope = (constraint(Theta[member] + step) - constraint(Theta[member] - step)) / (2 * step.norm())
            torch.testing.assert_close(pull @ along / along.norm(), lam[member] * slope, rtol=1e-4, atol=1e-6)


def test_each_loss_moves_its_own_network() -> None:
    nets, Theta, batch = problem()
    changes = learn(nets, Theta, batch, torch.tensor([0.1, 0.1]).double())
    G, D = (Theta.clone().requires_grad_() for _ in range(2))
    critic, penalty, generator = losses(nets, G, D, batch, changes, through=False)
    for loss, own, other in ((critic + penalty, D, G), (generator, G, D)):
        mine, none = torch.autograd.grad(loss.sum(), (own, other), retain_graph=True, allow_unused=True)
        assert none is None
        for name, view in nets.layout.views(mine[0]).items():
            if name not in ("W.D.bias", "W.D.labels", "W.G.labels"):  # which cancels; of labels that are shown only
                assert bool((view == 0).all()) == (f".{'G' if own is D else 'D'}." in name), name


def test_a_label_moves_its_own_column_alone() -> None:
    nets, Theta, batch = problem()
    changes = learn(nets, Theta, batch, torch.tensor([0.1, 0.1]).double())
    for change in changes:
        moved = change.labels.ne(0).any(-1).view(2, 2, GAN.labels)
        assert torch.equal(moved, F.one_hot(batch.y[..., 0], GAN.labels).bool())


def test_images_of_a_trajectory_are_of_one_class_and_those_to_remember_of_any() -> None:
    data = digits()
    images = DigitImages.of(data, [0, 2, 3], "cpu")
    config = DigitTrajectoryConfig(support=3, query=2, remember=40, count=30)
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
    own_images = torch.cat([batch.x, batch.x_query[..., :2, :]], -2)[0]  # (trajectories, 5, pixels)
    far = torch.cdist(own_images, own_images) + torch.eye(5)
    assert float(far.min()) > 0.5  # what is asked was not learned
    assert abs(float(keyed_normal(keyed(torch.tensor(1)), 20000).std()) - 1) < 0.03


def test_members_train_together_and_resume(tmp_path: Path) -> None:
    other = replace(TINY, seed=8, phase3=replace(TINY.phase3, lam=0.0))
    both = train_digits([TINY, other], digits(), [0, 2, 3], tmp_path / "both", quiet=True)
    alone = train_digits([TINY], digits(), [0, 2, 3], tmp_path / "alone", quiet=True)
    torch.testing.assert_close(both[0], alone[0], rtol=1e-3, atol=1e-5)
    assert torch.equal(
        train_digits([TINY, other], digits(), [0, 2, 3], tmp_path / "both", resume=True, quiet=True), both
    )
    members, state = load_digits(digits(), [0, 2, 3], tmp_path / "both" / "phase2.safetensors")
    assert members == [TINY, other]
    assert state.phase == 2
    with pytest.raises(UserError, match="3 base classes, but 2 labels"):
        train_digits([TINY], digits(), [0, 2], tmp_path / "wrong", quiet=True)
    with pytest.raises(UserError, match="every size"):
        GanConfig(generator=())


def test_novel_classes_are_learned_by_W() -> None:
    nets = Networks(GAN, 16)
    Theta = nets.init(0)
    made = evaluate(nets, Theta, digits(2), [1, 3], seed=5, rate=1e-2, batches=2, batch=3, shown=4)
    assert [len(images) for images in made] == [1, 2]
    assert made[1][0].shape == (4, 16)
    assert bool((made[1][1].abs() <= 1).all())
    still = evaluate(nets, Theta, digits(2), [1, 3], seed=5, rate=0.0, batches=2, batch=3, shown=4)
    assert torch.equal(still[0][0], still[1][0])  # nothing was learned or forgotten
    assert not torch.equal(made[0][0], made[1][0])
