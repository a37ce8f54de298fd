"""MERLIN: the autoencoder of weights, and what the ensemble is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners import weightvae as vae
from kcciol.learners.merlin import MERLIN, with_one
from kcciol.learners.model import Head
from tests.learners.battery import WIDTH, answers, examples, feed, make, same


def merlin(**settings: Any) -> MERLIN:
    learner = make("merlin", Head(WIDTH), **settings)
    assert isinstance(learner, MERLIN)
    return learner


def taught(count: int = 12, **settings: Any) -> tuple[MERLIN, Tensor]:
    """A learner at the end of a stream of four tasks, and the stream."""
    learner = merlin(**settings)
    x, y = examples(learner.model, count)
    feed(learner, x, y)
    learner.end_task()
    return learner, x


@pytest.mark.parametrize("size", [1, 4, 11, 30])
def test_rows_are_cut_and_put_together_again(size: int) -> None:
    rows = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    chunks = vae.to_chunks(rows, size)
    assert chunks.shape == (5, vae.Shape(11, size, 1, 1, 1).pieces, size)
    assert torch.equal(vae.from_chunks(chunks, 11), rows)
    assert bool((chunks.flatten(1)[:, 11:] == 0).all())


def test_what_is_decoded_has_the_shape_of_what_was_encoded() -> None:
    shape = vae.Shape(width=11, chunk=4, hidden=5, latent=2, place=3)
    weights = shape.start(torch.Generator().manual_seed(0))
    chunks = vae.to_chunks(torch.randn(6, 11), 4)
    z, logvar = vae.encode(weights, chunks)
    assert z.shape == logvar.shape == (6, 3, 2)
    again = vae.decode(weights, z, torch.randn(6, 3))
    assert again.shape == chunks.shape
    assert vae.from_chunks(again, 11).shape == (6, 11)  # without the padding
    many = vae.decode(weights, z.expand(7, -1, -1, -1), torch.zeros(6, 3))
    torch.testing.assert_close(many[3], vae.decode(weights, z, torch.zeros(6, 3)))


def test_the_divergence_is_zero_from_the_prior_itself_and_torchs_otherwise() -> None:
    mean, logvar, other, otherlog = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(vae.divergence(mean, logvar, mean, logvar), torch.zeros(5))
    q = torch.distributions.Normal(mean, (0.5 * logvar).exp())
    p = torch.distributions.Normal(other, (0.5 * otherlog).exp())
    expected = torch.distributions.kl_divergence(q, p).sum(-1)
    torch.testing.assert_close(vae.divergence(mean, logvar, other, otherlog), expected)


def test_a_whole_network_is_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match="give it the features"):
        make("merlin", make("podnet").model)


def test_without_tuning_and_after_one_task_the_decoded_model_answers() -> None:
    learner = merlin(tune_steps=0, members=1)
    x, y = examples(learner.model, 12, classes=3)
    feed(learner, x, y, tasks=False)
    learner.end_task()
    learner.state["prior.logvar"].fill_(-80.0)  # a prior of one point, so that the code is known
    state = learner.state_dict()
    weights = {n.removeprefix("generator."): t[0] for n, t in state.items() if n.startswith("generator.")}
    z = state["prior.mean"][0, 0].expand(3, learner.shape.pieces, -1)
    head = vae.from_chunks(vae.decode(weights, z, state["generator.class"][0]), WIDTH + 1) * state["prior.size"][0, 0]
    torch.testing.assert_close(learner.scores(x[None])[0], x @ head[:, :-1].T + head[:, -1])


def test_the_logits_of_the_members_are_summed() -> None:
    learner, x = taught(members=3)
    heads = learner.tuned(0, learner.heads(0))
    assert heads.shape == (3, 4, WIDTH + 1)
    expected = sum(with_one(x) @ head.T for head in heads)
    torch.testing.assert_close(learner.scores(x[None])[0], expected)
    assert not torch.equal(heads[0], heads[1])


def test_a_task_alone_is_learned_by_the_autoencoder() -> None:
    """With enough steps the decoded head is the head of the task."""
    learner = merlin(epochs=800, tune_steps=0, members=1, hidden=30)
    x, y = examples(learner.model, 40)
    feed(learner, x, y, tasks=False)
    before = answers(learner, x)  # of the model of the task
    rows = learner.state_dict()["parameters.weight"][0]
    learner.end_task()
    learner.state["prior.logvar"].fill_(-80.0)
    error = (learner.heads(0)[0] - rows).square().mean().sqrt()
    assert error < 0.2 * rows.square().mean().sqrt()
    assert bool((answers(learner, x) == before).all())


def test_replayed_weights_keep_earlier_tasks_in_the_autoencoder() -> None:
    """What the first task's prior decodes to moves less when it is learned again with the others."""
    moved = []
    for replayed in (0, 5):
        learner = merlin(epochs=200, replayed=replayed)
        x, y = examples(learner.model, 40)
        feed(learner, x[:20], y[:20], tasks=False)
        learner.end_task()

        def first(learner: MERLIN = learner) -> Tensor:
            mean = learner.state["prior.mean"][0, 0]
            labels = torch.tensor([0, 1])
            generator = torch.Generator().manual_seed(0)
            return learner._decode(0, mean, torch.zeros_like(mean), labels, 1, generator)

        before = first()
        for start in (20, 30):
            feed(learner, x[start : start + 10], y[start : start + 10], tasks=False)
            learner.end_task()
        moved.append(float((first() - before).square().mean()))
    assert moved[1] < 0.5 * moved[0]


def test_the_draw_that_is_right_most_often_is_learned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that are unit vectors; heads that are right on none, on all and on one class."""
    learner = merlin(draws=3, slots=12)
    unit = torch.eye(WIDTH)
    for labels in ([4, 1], [2]):
        feed(learner, unit[labels], np.array(labels), tasks=False)
        learner.end_task()
    asked: list[tuple[Tensor, Tensor]] = []

    def decode(copy: int, mean: Tensor, variance: Tensor, labels: Tensor, count: int, _: torch.Generator) -> Tensor:
        asked.append((mean, variance))
        right = F.pad(unit, (0, 1))[labels]  # without biases
        assert count == 3
        return vae.to_chunks(torch.stack([right.roll(1, 0), right, torch.zeros_like(right)]), learner.shape.chunk)

    monkeypatch.setattr(learner, "_decode", decode)
    for task, known in enumerate(([1, 4], [1, 2, 4])):
        chunks, classes = learner._recall(0, task, torch.Generator())
        assert classes.tolist() == known
        assert torch.equal(vae.from_chunks(chunks, WIDTH), unit[known])
        mean, variance = asked[-1]
        assert torch.equal(mean, learner.state["prior.mean"][0, task])
        assert torch.equal(variance, learner.state["prior.logvar"][0, task].exp())


def test_a_boundary_learns_each_tasks_weights_under_its_own_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against autograd, where every random number is 1; then the ensemble is decoded from the mean of the priors."""
    learner = make("merlin", Head(WIDTH, torch.float64), epochs=3, replayed=9, generator_rate=2**-6)
    assert isinstance(learner, MERLIN)
    x, y = examples(learner.model, 9, classes=3)
    feed(learner, x.double(), y)
    generator = torch.Generator().manual_seed(0)
    for name in ("prior.mean", "prior.logvar"):
        learner.state[name].normal_(generator=generator)
    monkeypatch.setattr(learner, "_normal", lambda _, *shape: torch.ones(shape, dtype=torch.float64))
    p = {n: t[0].clone() for n, t in learner._known().items()}
    size = p["parameters.weight"].square().mean().sqrt()
    for name in ("prior.mean", "prior.logvar"):
        p[name] = torch.cat([p[name], torch.zeros_like(p[name][:1])])

    def decode(z: Tensor, classes: int) -> Tensor:
        weights = {n.removeprefix("generator."): t for n, t in p.items()}
        return vae.decode(weights, z.expand(classes, learner.shape.pieces, -1), p["generator.class"][:classes])

    heads = [decode(p["prior.mean"][t] + (0.5 * p["prior.logvar"][t]).exp(), t + 1) for t in range(2)]
    heads.append(vae.to_chunks(p["parameters.weight"] / size, learner.shape.chunk))
    names = [n for n in p if n.startswith("generator.")] + ["prior.mean", "prior.logvar"]
    optimizer = torch.optim.Adam([p[n].requires_grad_() for n in names], lr=2**-6)
    for _ in range(3):
        losses = []
        for task, head in enumerate(heads):
            mean, logvar = vae.encode({n.removeprefix("generator."): t for n, t in p.items()}, head.detach())
            q = torch.distributions.Normal(mean, (0.5 * logvar).exp())
            prior = torch.distributions.Normal(p["prior.mean"][task], (0.5 * p["prior.logvar"][task]).exp())
            again = decode(mean + (0.5 * logvar).exp(), len(head))
            kl = torch.distributions.kl_divergence(q, prior).sum(-1)
            losses.append((0.5 * (head.detach() - again).square().sum(-1) + kl).flatten())
        gradients = torch.autograd.grad(torch.cat(losses).mean(), [p[n] for n in names])
        for name, gradient in zip(names, gradients, strict=True):
            p[name].grad = gradient
        optimizer.step()
    learner.end_task()
    state = learner.state_dict()
    for name in names:
        torch.testing.assert_close(state[name][0], p[name].detach(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(state["prior.size"][0, 2], size)
    assert not state["parameters.weight"].any()
    z = p["prior.mean"].mean(0) + p["prior.logvar"].exp().mean(0).sqrt()
    ensemble = vae.from_chunks(decode(z, 3), WIDTH + 1).detach() * state["prior.size"][0].mean()
    torch.testing.assert_close(learner.heads(0), ensemble.expand(2, -1, -1), rtol=1e-9, atol=1e-10)


def test_the_model_of_a_task_and_the_tuning_descend_on_the_cross_entropy_of_the_classes_seen() -> None:
    """A memory of one slot, so that it is known what tuning draws."""
    learner = make("merlin", Head(WIDTH, torch.float64), updates=2, rate=0.125, slots=1, tune_steps=3, tune_rate=2**-6)
    assert isinstance(learner, MERLIN)
    x, y = examples(learner.model, 4)
    y, x = np.array([3, 0, 3, 1])[y], x.double()
    feed(learner, x[:3], y[:3], tasks=False)
    model = learner.rows["parameters.weight"][0, [0, 3]].clone().requires_grad_()
    learner.learn(x[2:3], y[2:3])
    for _ in range(2):
        loss = F.cross_entropy(F.linear(with_one(x[2:3]), model), torch.tensor([1]))
        model = (model - 0.125 * torch.autograd.grad(loss, model)[0]).detach().requires_grad_()
    torch.testing.assert_close(learner.rows["parameters.weight"][0, [0, 3]], model.detach())
    kept, label = with_one(learner.kept["x"][0]), learner.kept["y"][0] // 3
    optimizer = torch.optim.Adam([model], lr=2**-6)
    for _ in range(3):
        (model.grad,) = torch.autograd.grad(F.cross_entropy(F.linear(kept, model), label), model)
        optimizer.step()
    torch.testing.assert_close(learner.tuned(0, learner.heads(0))[0], model.detach())


def test_tuning_fits_the_memory_and_only_the_memory_is_read() -> None:
    learner, _ = taught(tune_steps=300, slots=12)
    kept, labels = learner.kept["x"][0], learner.kept["y"][0]
    assert bool((answers(learner, kept)[0] == labels).all())


def test_classes_of_an_unfinished_task_answer_with_the_model_in_training() -> None:
    learner, x = taught(tune_steps=0)
    feed(learner, x[:1], torch.tensor([6]).numpy())
    model = learner.state_dict()["parameters.weight"][0]
    heads = learner.heads(0)
    assert bool((heads[:, 4] == model[6]).all())  # the fifth class that was seen
    assert not bool((heads[:, 0] == model[0]).all())


def test_the_same_seeds_give_the_same_bits_and_answers_do_not_depend_on_what_was_asked_before() -> None:
    (one, x), (two, _) = taught(), taught()
    first = one.scores(x[None])
    assert torch.equal(first, one.scores(x[None]))
    assert torch.equal(first, two.scores(x[None]))
    three = merlin()
    three.load_state_dict(one.state_dict())
    assert torch.equal(first, three.scores(x[None]))
    assert same(one, two)
    other, _ = taught(keys=(4,))
    assert not torch.equal(first, other.scores(x[None]))


def test_the_controls_differ_from_the_method_and_from_each_other() -> None:
    x, _ = examples(Head(WIDTH), 12)
    controls: list[dict[str, Any]] = [{}, {"generator": "none"}, {"tune_steps": 0}]
    scores = [taught(**settings)[0].scores(x[None]) for settings in controls]
    for i in range(3):
        assert not torch.allclose(scores[i], scores[i - 1], atol=1e-2)


def test_without_a_generator_only_examples_are_kept() -> None:
    learner, _ = taught(generator="none", tune_steps=300, tune_rate=0.01, slots=12)
    assert set(learner.memory()) == {"memory"}
    assert bool((answers(learner, learner.kept["x"][0])[0] == learner.kept["y"][0]).all())


def test_the_memory_report_counts_generator_priors_and_examples() -> None:
    learner, _ = taught()
    assert learner.tasks == 4
    shape = learner.shape
    generator = sum(t.nbytes for t in shape.start(torch.Generator()).values()) + 4 * 4 * shape.place
    prior = 4 * 4 * (2 * shape.latent + 1) + 8 * 4
    assert learner.memory() == {"generator": generator, "prior": prior, "memory": 7 * (4 * WIDTH + 8), "task": 8}


def test_a_boundary_without_examples_changes_nothing() -> None:
    learner, _ = taught()
    before = learner.state_dict()
    learner.end_task()
    after = learner.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("name", "value"), [("chunk", 0), ("members", 0), ("tune_rate", 0.0), ("slots", 0)])
def test_bad_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{name} is {value:g}"):
        merlin(**{name: value})
