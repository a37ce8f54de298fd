"""The closed forms against what they are closed forms of."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kcciol.config import EvaluationConfig
from kcciol.data.examples import Examples
from kcciol.errors import UserError
from kcciol.evaluation.measure import measure_learner
from kcciol.evaluation.protocol import Scenario
from kcciol.learner import OnlineLearner
from kcciol.learners.gaussian import Gaussian, GaussianSettings, fit_prior
from kcciol.learners.model import Head
from kcciol.learners.ridge import DRAWN, Ridge, RidgeSettings
from kcciol.learners.slda import SLDA
from kcciol.paper.cells import CLOSED
from tests.learners.battery import WIDTH, answers, examples, feed, make

CLASSES = 4


def data(count: int = 60, seed: int = 0) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
    return examples(Head(WIDTH), count, seed, CLASSES)


def batch_means(x: torch.Tensor, y: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.stack([x[y == c].double().mean(0) for c in range(CLASSES)])


def test_ncm_answers_with_the_nearest_mean() -> None:
    x, y = data()
    learner = make("ncm")
    feed(learner, x, y)
    queries, _ = data(seed=5)
    distances = torch.cdist(queries.double(), batch_means(x, y))
    assert answers(learner, queries)[0].tolist() == distances.argmin(1).tolist()
    cosine = make("ncm", distance="cosine")
    feed(cosine, x, y)
    similarity = F.normalize(queries.double(), dim=1) @ F.normalize(batch_means(x, y), dim=1).T
    torch.testing.assert_close(cosine.scores(queries[None])[0], similarity)


def test_ncm_does_not_see_a_shift_of_all_features_and_is_1nn_at_one_example_a_class() -> None:
    x, y = data(CLASSES)
    one, two = make("ncm"), make("ncm")
    feed(one, x, y)
    feed(two, x + 100, y)
    queries, _ = data(seed=2)
    expected = torch.cdist(queries, x).argmin(1).tolist()
    assert answers(one, queries)[0].tolist() == expected == answers(two, queries + 100)[0].tolist()


def test_slda_is_batch_lda_however_many_examples_wait() -> None:
    for count in (40, 64, 130):
        x, y = data(count)
        learner = make("slda", shrinkage=0.2)
        assert isinstance(learner, SLDA)
        feed(learner, x, y)
        means = batch_means(x, y)
        centred = x.double() - means[y]
        sigma = centred.T @ centred / count
        torch.testing.assert_close(learner.scatter.total()[0] / count, sigma, rtol=1e-4, atol=1e-5)
        sigma = 0.8 * sigma / (sigma.trace() / WIDTH) + 0.2 * torch.eye(WIDTH, dtype=torch.float64)
        weight = torch.linalg.solve(sigma, means.T)
        expected = x.double() @ weight - (weight * means.T).sum(0) / 2
        torch.testing.assert_close(learner.scores(x[None])[0], expected, rtol=1e-3, atol=1e-3)
        alone = torch.cat([learner.scores(x[None, i : i + 1]) for i in range(5)], 1)  # fewer than there are classes
        torch.testing.assert_close(alone, learner.scores(x[None])[:, :5])


def test_slda_that_is_all_shrinkage_is_the_nearest_mean() -> None:
    x, y = data()
    slda, ncm = make("slda", shrinkage=1.0), make("ncm")
    feed(slda, x, y)
    feed(ncm, x, y)
    queries, _ = data(seed=9)
    assert answers(slda, queries).tolist() == answers(ncm, queries).tolist()


def test_slda_does_not_see_a_linear_map_of_the_features() -> None:
    """With hardly any shrinkage; more examples than dimensions, and no feature that is constant."""
    generator = torch.Generator().manual_seed(0)
    y = np.arange(400) * CLASSES // 400
    x = torch.randn(400, WIDTH, generator=generator) + 3 * torch.randn(CLASSES, WIDTH, generator=generator)[y]
    turn = torch.randn(WIDTH, WIDTH, generator=generator) + 3 * torch.eye(WIDTH)
    one, two = make("slda", shrinkage=1e-7), make("slda", shrinkage=1e-7)
    feed(one, x, y)
    feed(two, x @ turn, y)
    agree = answers(one, x)[0] == answers(two, x @ turn)[0]
    assert agree.double().mean() > 0.99


@pytest.mark.parametrize("shrinkage", [0.0, 1.5, -1.0])
def test_slda_refuses_what_is_no_share(shrinkage: float) -> None:
    with pytest.raises(UserError, match="shrinkage is"):
        make("slda", shrinkage=shrinkage)


@pytest.mark.parametrize("units", [0, 9])
def test_ridge_is_batch_ridge_regression(units: int) -> None:
    x, y = data(70)
    learner = make("ridge", units=units, penalty=0.3)
    assert isinstance(learner, Ridge)
    feed(learner, x, y)
    phi = learner.phi(x).double()
    gram = phi.T @ phi
    gram += 0.3 * gram.diagonal().mean() * torch.eye(len(gram))
    target = F.one_hot(torch.from_numpy(y)).double()
    weight = torch.linalg.solve(gram, phi.T @ target)
    torch.testing.assert_close(learner.scores(x[None])[0], phi @ weight, rtol=1e-3, atol=1e-4)


def test_the_random_features_of_ridge_are_drawn_as_ever() -> None:
    """They are not saved: a learner is loaded on the promise that they are drawn again."""
    ridge = Ridge(Head(256), RidgeSettings())
    first = [0.10650014877319336, 0.08899087458848953, -0.07329577207565308, 0.02189992181956768]
    torch.testing.assert_close(ridge.projection[0, :4], torch.tensor(first))
    torch.testing.assert_close(ridge.projection[-1, -2:], torch.tensor([-0.06297314167022705, 0.043434988707304]))


def test_ridge_goes_on_with_its_own_random_features_only() -> None:
    ridge = make("ridge", units=40)
    feed(ridge, *data())
    saved = ridge.state_dict()
    x, _ = data(seed=5)
    older = {name: tensor for name, tensor in saved.items() if name != DRAWN}
    for state in (saved, older):
        again = make("ridge", units=40)
        again.load_state_dict(state)
        torch.testing.assert_close(again.scores(x[None]), ridge.scores(x[None]), rtol=0, atol=0)
    for other in (saved[DRAWN] + 0.1, saved[DRAWN][:1]):
        with pytest.raises(UserError, match="other random features than are drawn here"):
            make("ridge", units=40).load_state_dict(saved | {DRAWN: other})


def test_the_gaussian_posterior_is_the_batch_one() -> None:
    x, y = data()
    learner = make("gaussian", alpha=3.0, beta=2.0)
    assert isinstance(learner, Gaussian)
    feed(learner, x, y)
    n, means, a, b = learner.form().posterior(learner.class_rows())
    for c in range(CLASSES):
        mine = x[y == c].double()
        assert n[0, c, 0] == len(mine)
        torch.testing.assert_close(means[0, c], mine.mean(0))
        assert a[0, c, 0] == 3 + len(mine) / 2
        torch.testing.assert_close(b[0, c], 2 + (mine - mine.mean(0)).square().sum(0) / 2)


def test_the_gaussian_scores_are_the_predictive_density() -> None:
    """Integrated numerically over the precision lambda: the mean given lambda is known in closed form."""
    alpha, beta, seen, query = 3.0, 2.0, [0.3, 1.1, -0.4, 0.9], 1.7
    learner = Gaussian(Head(1), Gaussian.settings_type(alpha=alpha, beta=beta))
    for value in seen:
        learner.learn(torch.tensor([[value]]), np.array([0]))
    x = torch.tensor(seen, dtype=torch.float64)
    n, m, S = len(seen), x.mean(), (x - x.mean()).square().sum()
    lam = torch.linspace(1e-5, 40, 400_001, dtype=torch.float64)
    log_posterior = (alpha + n / 2 - 1) * lam.log() - lam * (beta + S / 2)
    w = (log_posterior - log_posterior.max()).exp()
    spread = (1 + 1 / n) / lam
    density = torch.exp(-((query - m) ** 2) / (2 * spread)) / (2 * math.pi * spread).sqrt()
    expected = torch.trapezoid(w * density, lam) / torch.trapezoid(w, lam)
    got = learner.scores(torch.tensor([[[query]]]))[0, 0, 0].exp()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=0)


def test_the_map_scores_are_log_densities_at_the_mode() -> None:
    """But for a number that is the same for all classes; classes of unequally many examples, copies of other priors."""
    priors, counts = ((3.0, 2.0), (0.75, 0.5)), (1, 4, 9)
    learner = Gaussian(
        Head(WIDTH), [GaussianSettings(alpha=a, beta=b, form="map") for a, b in priors], keys=range(len(priors))
    )
    x, y = data(sum(counts))[0], np.repeat(np.arange(3), counts)
    feed(learner, x, y)
    queries = data(seed=5)[0].double()
    scores = learner.scores(queries.float().expand(2, *queries.shape)).log_softmax(-1)
    for copy, (alpha, beta) in enumerate(priors):
        densities = []
        for c, n in enumerate(counts):
            mine = x[y == c].double()
            variance = (beta + (mine - mine.mean(0)).square().sum(0) / 2) / (alpha + n / 2 - 0.5)
            density = torch.distributions.Normal(mine.mean(0), variance.sqrt()).log_prob(queries)  # type: ignore[no-untyped-call]
            densities.append(density.sum(-1))
        torch.testing.assert_close(scores[copy], torch.stack(densities, -1).log_softmax(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", ["exact", "map"])
def test_a_certain_prior_is_the_nearest_mean(form: Any) -> None:
    x, y = data()
    gaussian, ncm = make("gaussian", alpha=1e9, beta=1e8, form=form), make("ncm")
    feed(gaussian, x, y)
    feed(ncm, x, y)
    queries, _ = data(seed=9)
    assert answers(gaussian, queries).tolist() == answers(ncm, queries).tolist()


def test_the_prior_is_found_again() -> None:
    generator = np.random.default_rng(0)
    alpha, beta = 20.0, 3.0
    variances = beta / generator.gamma(alpha, size=3000)
    features = generator.standard_normal((3000, 200, 4)) * np.sqrt(variances)[:, None, None]
    found = fit_prior(torch.from_numpy(features))
    assert abs(found[0] / alpha - 1) < 0.1
    assert abs(found[1] / found[0] / (beta / alpha) - 1) < 0.05
    with pytest.raises(UserError, match="two or more base classes"):
        fit_prior(torch.zeros(5, 3, 2))


def test_a_prior_that_is_fitted_is_that_of_the_tables() -> None:
    base, novel = clusters(0), clusters(1)
    scenario = Scenario(novel, Head(WIDTH), base)
    stream = EvaluationConfig(classes=(4,), train_samples=5, test_samples=3, trajectories=1)
    table = measure_learner(scenario, "gaussian", stream, fixed=CLOSED["gaussian"])["choice"]["settings"]
    learner = OnlineLearner("gaussian", WIDTH, Gaussian.fit_settings(base.train) | {"form": "map"})
    assert dataclasses.asdict(learner.settings) == table
    assert dataclasses.asdict(OnlineLearner("gaussian", WIDTH).settings) != table  # but a default that fits nothing


def clusters(seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 1, WIDTH, generator=generator) + 0.2 * torch.randn(6, 8, WIDTH, generator=generator)
    return Examples(x[:, :5], x[:, 5:])
