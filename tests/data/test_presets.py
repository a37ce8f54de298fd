"""The presets of the data sets here: the paper's numbers, and images that the network takes."""

from __future__ import annotations

import pytest

from kcciol.config import preset

PRINTED = {
    "mini-imagenet": ([26000, 26000, 22000], 1e-4, 1e-4, [0.1, 0.1, 0.5]),
    "cifar100": ([50000, 35000, 21000], 1e-4, 5e-4, [1e-3, 1e-3, 0.1]),
}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.parametrize("twin", ["", "-literal"])
def test_the_printed_hyper_parameters(name: str, twin: str) -> None:
    c = preset(name + twin)
    steps, gamma, lam, alphas = PRINTED[name]
    assert c.data.name == name
    assert [p.steps for p in c.phases] == steps
    assert [p.gamma for p in c.phases] == [0, gamma, 0]
    assert [p.lam for p in c.phases] == [0, 0, lam]
    assert c.mask.delta == 0.5
    assert (c.evaluation.train_samples, c.evaluation.test_samples) == (30, 30)
    if twin:
        assert [p.alpha for p in c.phases] == alphas
        assert {p.beta for p in c.phases} == {1e-4}
        assert (c.trajectory.classes, c.trajectory.support, c.trajectory.query, c.trajectory.remember) == (1, 10, 5, 10)
        assert (c.net.hidden, c.meta.order, c.meta.reset, c.meta.clamp) == (1024, "first", "none", 0.0)


@pytest.mark.parametrize("name", PRINTED)
def test_features_are_as_many_as_on_omniglot(name: str) -> None:
    c = preset(name)
    size = c.data.size
    for stride in c.net.strides:
        size = (size - 3) // stride + 1
    assert size * size * c.net.channels == 2304
