"""What must hold of learners on a GPU: the same answers as on a CPU, exact restoring, streams of many copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.data import load
from kcciol.encoders.run import Representation
from kcciol.engine import checkpoint
from kcciol.engine.device import precision
from kcciol.evaluation.measure import measure_learner, scenario_of
from kcciol.learners import LEARNERS, fitting
from kcciol.learners.model import Network
from kcciol.meta.methods import REPRESENTATIONS
from kcciol.meta.phases import train
from kcciol.nets import copies
from tests.learners.battery import STREAMS, examples, feed, kinds, make, model_of, same, tiny, tiny_method

pytestmark = pytest.mark.cuda
every = pytest.mark.parametrize(("name", "kind"), kinds())
exactly = pytest.mark.usefixtures("exact")


@pytest.fixture
def exact() -> Iterator[None]:
    """Products of float32 numbers, where a test computes by itself; streams choose their own precision."""
    with precision("float32", torch.device("cuda")):
        yield


@exactly
@every
def test_a_gpu_answers_as_a_cpu_does(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 30)
    # the gradient of a distance is of length one however small it is: after that, rounding decides where PODNet goes
    calm: dict[str, Any] = {"spatial": 0.0, "rate": 1e-3} if name == "podnet" else {}
    here, there = make(name, model_of(kind), (3, 8), **calm), make(name, model_of(kind), (3, 8), "cuda", **calm)
    for learner in (here, there):
        feed(learner, x, y)
    assert {t.device.type for n, t in there.rows.items()} <= {"cuda"}
    one, two = here.scores(torch.stack([x, x])), there.scores(torch.stack([x, x]).cuda()).cpu()
    if name in ("gss", "gss-iqp", "merlin"):  # whose choices turn on the last bit of a cosine or a draw
        assert (one.argmax(-1) == two.argmax(-1)).double().mean() > 0.6
    else:
        torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2)


@exactly
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("inputs", "images"), [(1, 1), (3, 4)])
def test_kernels_convolve_as_the_definition_does(fast: bool, inputs: int, images: int) -> None:
    """At the size of the presets, with few and with many places."""
    torch.manual_seed(0)
    strides, x = (2, 1, 2, 2), torch.rand(3, images, inputs, 63, 69, device="cuda")
    theta = {}
    for layer in range(1, 5):
        width = inputs if layer == 1 else 256
        theta[f"conv{layer}.weight"] = torch.randn(3, 256, width, 3, 3, device="cuda") * (2 / (9 * width)) ** 0.5
        theta[f"conv{layer}.bias"] = 0.1 * torch.randn(3, 256, device="cuda")
    leaves = [t.requires_grad_() for t in theta.values()]
    found = []
    for way in (copies.grouped, copies.by_kernels):
        torch.backends.cuda.matmul.allow_tf32 = fast and way is copies.by_kernels
        torch.backends.cudnn.allow_tf32 = False
        maps = list(way(theta, x, strides))
        loss = torch.stack([(a * a.detach().cos()).mean() for a in maps]).sum()
        first = torch.autograd.grad(loss, leaves, retain_graph=True)
        again = torch.autograd.grad(loss, leaves, create_graph=True)
        twice = torch.autograd.grad(
            torch.stack([g.square().sum() for g in again]).sum(), leaves, materialize_grads=True
        )
        found.append((*maps, *first, *twice))
    for one, two in zip(*found, strict=True):
        if fast:  # rounding turns some units on or off, and with them single entries of a gradient
            assert (one - two).norm() <= 2e-2 * two.norm()
        else:
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3 * float(two.detach().abs().max()))


@exactly
@pytest.mark.parametrize("fast", [False, True])
def test_gradients_of_single_images_are_those_of_a_cpu(fast: bool) -> None:
    model = model_of("network")
    assert isinstance(model, Network)
    torch.manual_seed(0)
    x = torch.randint(0, 256, (3, 4, *model.input_shape), dtype=torch.uint8)
    gradient, grams = torch.randn(3, 4, model.width), []
    head = {"weight": torch.zeros(3, 1, model.width), "bias": torch.zeros(3, 1)}
    for device in ("cpu", "cuda"):
        torch.backends.cuda.matmul.allow_tf32 = fast
        parameters = {n: p.to(device) for n, p in (model.start(3, torch.device("cpu")) | head).items()}
        parts = model.single_gradients(parameters, x.to(device), gradient.to(device))
        grams.append(sum((g.double() @ g.double().mT).cpu() for g in parts))
    one, two = (g for g in grams if isinstance(g, Tensor))
    assert float((one - two).norm() / one.norm()) < (2e-2 if fast else 1e-4)


@exactly
def test_the_inputs_of_convolutions_are_last_in_memory() -> None:
    learner = make("online", model_of("network"), device="cuda")
    weight = learner.state["parameters.conv2.weight"]
    assert weight.permute(0, 1, 3, 4, 2).is_contiguous()
    assert not weight.is_contiguous()


@exactly
@every
def test_restored_on_a_gpu_it_ends_in_the_same_bits(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 24)
    whole, first, second = (make(name, model_of(kind), device="cuda") for _ in range(3))
    feed(whole, x, y)
    feed(first, x[:13], y[:13])
    second.load_state_dict({n: t.cpu() for n, t in first.state_dict().items()})
    for i in range(13, 24):
        if y[i] != y[i - 1]:
            second.end_task()
        second.learn(x[i : i + 1].cuda(), y[i : i + 1])
    assert same(whole, second)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("trains", ["head", "all"])
def test_streams_are_learned_and_settings_chosen_on_a_gpu(name: str, trains: Any) -> None:
    if name not in fitting(trains):
        pytest.skip(f"{name} does not train {trains}")
    config = tiny(base=14, held_out=6, novel=8, samples=8, channels=8)
    data = load(config.data)
    stream = replace(STREAMS, budget_images=100)
    scenario = scenario_of(Representation.untrained(config, data.base, "cuda"), data, stream, trains)
    few = {k: v[:2] for k, v in list(LEARNERS[name].grid.items())[:1]}
    known = LEARNERS[name].settings_type.__dataclass_fields__
    cheap: dict[str, Any] = {k: 2 for k in ("tune_steps", "anchor_steps", "epochs") if k in known}
    result = measure_learner(scenario, name, stream, cheap, few)
    assert result["classes"]["6"]["n"] == 3


@exactly
@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_every_representation_trains_as_a_graph(name: str, tmp_path: Any) -> None:
    config = tiny_method(name, channels=16, steps=6)
    base = load(config.data).base
    ends = []
    for graph in (True, False):
        own = replace(config, engine=replace(config.engine, device="cuda", graph=graph))
        folder = train(own, base, tmp_path / str(graph), quiet=True)
        last = max(i for i in (1, 2, 3) if folder.phase(i).exists())
        ends.append(checkpoint.load(folder.phase(last)).tensors)
    assert ends[0].keys() == ends[1].keys()
    for key, tensor in ends[0].items():
        torch.testing.assert_close(tensor, ends[1][key], rtol=1e-3, atol=1e-5)
