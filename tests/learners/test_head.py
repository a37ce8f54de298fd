"""The quick form of `online` against Algorithm 4 as one would first write it: autograd, torch.optim, one example."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation import trace
from kcciol.evaluation.start import Start
from kcciol.evaluation.stream import Schedule
from kcciol.evaluation.trace import Streams, feed, run_copies
from kcciol.learners.base import Labels, Learner
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.head import HeadInStep, Layer, StartedHead, with_bias
from kcciol.learners.model import Head
from kcciol.learners.online import Online

WIDTH, HIDDEN, CLASSES, SAMPLES = 7, 6, 4, 5


def meta_W(hidden: int) -> dict[str, Tensor]:
    """A W as meta-training would leave it, of more rows than are needed."""
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64) * 0.3

    if not hidden:
        return {"weight": normal(9, WIDTH), "bias": normal(9)}
    first = {"hidden.weight": normal(hidden, WIDTH), "hidden.bias": normal(hidden)}
    return {**first, "weight": normal(9, hidden), "bias": normal(9)}


def images(classes: int = 6, samples: int = SAMPLES, width: int = WIDTH) -> Tensor:
    random = torch.Generator().manual_seed(2)
    return torch.randn(classes, samples, width, generator=random, dtype=torch.float64).relu()


def plain_module(layers: list[Tensor], copy: int, widths: list[int]) -> nn.Sequential:
    modules: list[nn.Module] = []
    for matrix, width in zip(layers, widths, strict=True):
        linear = nn.Linear(width, matrix.shape[1], dtype=matrix.dtype)
        linear.weight.data = matrix[copy, :, :width].clone()
        linear.bias.data = matrix[copy, :, width].clone()
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def plain_learn(module: nn.Module, train: Tensor, stream: list[int], rate: float, optimizer_name: str) -> None:
    kind: Any = torch.optim.Adam if optimizer_name == "adam" else torch.optim.SGD
    optimizer = kind(module.parameters(), lr=rate)
    for label, class_id in enumerate(stream):
        for x in train[class_id]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x[None]), torch.tensor([label]))
            torch.autograd.backward(loss)
            optimizer.step()


@pytest.mark.parametrize("outputs", [0, 6])
@pytest.mark.parametrize(
    ("hidden", "start", "reinit", "optimizer"),
    [
        *product([0], ["zero", "kaiming", "meta"], ["last"], ["adam", "sgd"]),
        *product([HIDDEN], ["zero", "kaiming", "meta"], ["last", "all"], ["adam", "sgd"]),
    ],
)
def test_equals_the_plain_loop(hidden: int, start: Any, reinit: Any, optimizer: Any, outputs: int) -> None:
    config = EvaluationConfig(start=start, reinit=reinit, optimizer=optimizer, outputs=outputs)
    maker = Start(meta_W(hidden), config, CLASSES, "report", WIDTH)
    train = images()
    streams = torch.tensor([[5, 0, 3, 1], [5, 0, 3, 1], [2, 4, 1, 0]])
    trajectories, rates = torch.tensor([0, 0, 1]), torch.tensor([0.3, 0.003, 0.05], dtype=torch.float64)
    widths = [WIDTH, hidden] if hidden else [WIDTH]
    layers = maker.layers(trajectories, train)
    query = images(6, 3).flatten(0, 1)
    settings = [GradientSettings(rate=rate, optimizer=optimizer, outputs=maker.outputs) for rate in rates.tolist()]
    begun = StartedHead(WIDTH, maker.layers(trajectories, train))
    model = Head(WIDTH, torch.float64) if maker.from_zero else begun
    head = HeadInStep(model, settings, trajectories.tolist())
    streams_given = Streams(Schedule(CLASSES, SAMPLES), streams, trajectories.tolist(), train, train)
    for _seen in feed(head, streams_given):
        pass
    got = head.scores(query.expand(3, -1, -1))[..., :CLASSES]
    for copy in range(3):
        module = plain_module(layers, copy, widths)
        plain_learn(module, train, streams[copy].tolist(), float(rates[copy]), optimizer)
        torch.testing.assert_close(got[copy], module(query).detach()[:, :CLASSES], rtol=1e-9, atol=1e-10)


def given(copies: int, classes: int = CLASSES) -> Streams:
    """Streams of features that a linear head can tell apart, more or less."""
    random = torch.Generator().manual_seed(3)
    ids = torch.stack([torch.randperm(6, generator=random)[:classes] for _ in range(copies)])
    return Streams(Schedule(classes, SAMPLES), ids, range(copies), images(), images())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("outputs", [CLASSES, CLASSES + 3])
def test_it_is_the_quick_form_of_online(optimizer: Any, outputs: int) -> None:
    """The learner's plain form, with a spare row in front, on the same streams: one number for the same thing."""
    settings = [GradientSettings(rate=rate, optimizer=optimizer, outputs=outputs) for rate in (0.3, 0.003, 0.05)]
    model, streams = Head(WIDTH, torch.float64), given(3)
    quick = Online.in_step(model, settings[0], CLASSES)(model, settings, range(3))
    plain = Online(model, settings, range(3))
    assert isinstance(quick, HeadInStep)
    for _seen in zip(feed(quick, streams), feed(plain, streams), strict=True):
        x = streams.train[streams.classes].flatten(1, 2)
        torch.testing.assert_close(quick.scores(x), plain.scores(x), rtol=1e-6, atol=1e-7)


def test_it_is_taken_where_the_number_of_rows_is_known() -> None:
    def kind(classes: int = 4, **settings: Any) -> type[Learner]:
        return Online.in_step(Head(WIDTH), GradientSettings(**settings), classes)

    assert kind(outputs=4) is HeadInStep
    assert kind(outputs=0, reserve=100) is kind(outputs=3) is Online


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("hidden", [0, HIDDEN])
def test_restored_it_goes_on_to_the_same_bits(hidden: int, optimizer: Any) -> None:
    maker = Start(meta_W(hidden), EvaluationConfig(start="zero" if not hidden else "meta"), CLASSES, "report", WIDTH)
    settings, streams = [GradientSettings(optimizer=optimizer, outputs=CLASSES)] * 2, given(2)

    def make() -> HeadInStep:
        begun = StartedHead(WIDTH, maker.layers(torch.arange(2), streams.train[:]))
        return HeadInStep(begun if hidden else Head(WIDTH, torch.float64), settings, range(2))

    whole, first, second = make(), make(), make()
    for label in range(CLASSES):
        x, y = streams.train[streams.classes[:, label]], np.full(2, label)
        whole.learn_class(x, y)
        if label == 2:
            second.load_state_dict(first.state_dict())
        (first if label < 2 else second).learn_class(x, y)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_what_it_cannot_do_is_refused() -> None:
    head = HeadInStep(Head(WIDTH, torch.float64), [GradientSettings(outputs=2)] * 2, range(2))
    x = images()[:2]
    with pytest.raises(UserError, match="the same label"):
        head.learn_class(x, np.array([0, 1]))
    with pytest.raises(UserError, match="no row for class 3: W has 2 rows"):
        head.learn_class(x, np.array([2, 2]))
    with pytest.raises(UserError, match="must be above 0"):
        HeadInStep(Head(WIDTH), GradientSettings(rate=-1.0, outputs=2))


def test_what_each_start_is() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    numbers = torch.tensor([0, 1, 1])

    def layers(hidden: int, **options: Any) -> list[Tensor]:
        return Start(meta_W(hidden), EvaluationConfig(**options), 4, "report", WIDTH).layers(numbers, like)

    assert all((layer == 0).all() for layer in layers(0, start="zero"))
    [drawn] = layers(0, start="kaiming")
    assert torch.equal(drawn[1], drawn[2])  # one trajectory, two rates
    assert not torch.equal(drawn[0], drawn[1])
    assert (drawn[:, :, WIDTH:] == 0).all()
    hidden, last = layers(HIDDEN, start="zero", reinit="last")
    assert torch.equal(hidden[0, :, :WIDTH], meta_W(HIDDEN)["hidden.weight"])
    assert (last == 0).all()
    hidden, last = layers(HIDDEN, start="zero", reinit="all")
    assert (hidden[:, :, :WIDTH] != 0).all()
    assert (last == 0).all()
    hidden, last = layers(HIDDEN, start="meta", reinit="all")
    assert torch.equal(hidden[0, :, WIDTH], meta_W(HIDDEN)["hidden.bias"])
    assert torch.equal(last[2, :, :HIDDEN], meta_W(HIDDEN)["weight"][:4])


def test_kaiming_has_the_right_spread() -> None:
    W = {"weight": torch.zeros(1, 500), "bias": torch.zeros(1)}
    [drawn] = Start(W, EvaluationConfig(start="kaiming"), 100, "report", 500).layers(torch.tensor([0]), torch.zeros(1))
    assert float(drawn[:, :, :500].std()) == pytest.approx((2 / 500) ** 0.5, rel=0.02)


@pytest.mark.parametrize("hidden", [0, HIDDEN])
def test_groups_change_nothing(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Start(meta_W(hidden), EvaluationConfig(start="kaiming"), CLASSES, "search", WIDTH)
    streams, groups = given(7), []
    settings = [
        GradientSettings(rate=rate, optimizer="adam", outputs=CLASSES) for rate in np.logspace(-3, -1, 7).tolist()
    ]

    def make(some: Any, numbers: Any) -> Learner:
        groups.append(len(numbers))
        return HeadInStep(StartedHead(WIDTH, maker.layers(torch.tensor(numbers), images())), some, numbers)

    whole = run_copies(make, settings, range(7), streams)
    one = make(settings[:1], [0])
    monkeypatch.setitem(trace.BUDGET, "cpu", 3 * one.workspace * trace.footprint(one, CLASSES))
    groups.clear()
    parts = run_copies(make, settings, range(7), streams)
    assert groups == [1, 3, 3, 1]  # one to see how much it takes
    assert torch.equal(whole.final, parts.final)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_each_example_exactly_once_in_order(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature that names the image shows what the head was given, and when."""
    train = torch.arange(6.0)[:, None, None] * 10 + torch.arange(3.0)[None, :, None]  # (6, 3, 1): class * 10 + image
    seen: list[tuple[int, list[float]]] = []
    learn = HeadInStep._learn_class

    def spy(self: HeadInStep, x: Tensor, y: Any) -> None:
        seen.append((int(y[0]), x[0, :, 0].tolist()))
        learn(self, x, y)

    monkeypatch.setattr(HeadInStep, "_learn_class", spy)
    head = HeadInStep(Head(1), GradientSettings(rate=0.1, optimizer=optimizer, outputs=3))
    for tasks in feed(head, Streams(Schedule(3, 3), torch.tensor([[4, 0, 2]]), [0], train, train)):
        assert head.last.steps == head.steps == 3 * tasks
    assert seen == [(0, [40.0, 41.0, 42.0]), (1, [0.0, 1.0, 2.0]), (2, [20.0, 21.0, 22.0])]


class Plain(HeadInStep):
    fuse = False


class Fused(HeadInStep):
    fuse = True


def compare_fused(device: str, copies: int = 3, outputs: int = 9, width: int = 600, samples: int = 3) -> None:
    """The Triton kernel against torch's operations, three classes, both optimizers, rows alike or not."""
    train = images(copies + 2, samples, width).float().to(device)
    rates = torch.logspace(-4, -3, copies).tolist()  # at ten times these, float32 itself is chaotic
    rows = with_bias(train).shape[2]
    start = torch.linspace(-0.01, 0.01, outputs * rows, device=device).view(1, outputs, rows).repeat(copies, 1, 1)
    optimizers: tuple[Literal["adam", "sgd"], ...] = ("adam", "sgd")
    for optimizer, alike in product(optimizers, (False, True)):
        settings = [GradientSettings(rate=rate, optimizer=optimizer, outputs=outputs) for rate in rates]
        models = (Head(width) if alike else StartedHead(width, [start.clone()]) for _ in range(2))
        heads = [
            kind(model, settings, range(copies), device) for kind, model in zip((Plain, Fused), models, strict=True)
        ]
        for label, head in product(range(3), heads):
            head.learn_class(train[label : label + copies], np.full(copies, label))
        plain, fused = (head.scores(train[:copies]) for head in heads)
        assert plain.shape[2] == (3 if alike else outputs)
        torch.testing.assert_close(fused, plain, rtol=2e-4, atol=2e-4)
        assert [head.last.steps for head in heads] == [3 * samples] * 2


def compare_adam_step(device: str) -> None:
    """The Triton kernel of one Adam step against torch's operations, with slices as a hidden layer has them."""
    torch.manual_seed(0)
    weight, rates = torch.randn(3, 7, 48).to(device), torch.tensor([0.1, 0.2, 0.3]).to(device)
    layers = [
        Layer(weight / rates[:, None, None], (torch.zeros_like(weight), torch.zeros_like(weight)), rates, kernel=kernel)
        for kernel in (False, True)
    ]
    for layer in layers:
        layer.use(5)
    for _ in range(4):
        delta, x = torch.randn(3, 1, 9).to(device)[..., :5], torch.randn(3, 1, 60).to(device)[..., :48]
        for layer in layers:
            layer.step(delta, x)
    torch.testing.assert_close(layers[1].weight, layers[0].weight, rtol=1e-5, atol=1e-5)
    assert torch.equal(layers[1].weight[:, 5:], weight[:, 5:] / rates[:, None, None])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernel_in_the_interpreter() -> None:
    """In a process of its own, because Triton reads TRITON_INTERPRET when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("copies", "outputs", "width"), [(3, 9, 600), (40, 200, 2304), (2, 1000, 64)])
def test_kernel_on_the_gpu(copies: int, outputs: int, width: int) -> None:
    compare_fused("cuda", copies, outputs, width, samples=15)
    compare_adam_step("cuda")


if __name__ == "__main__":
    compare_fused("cpu")
    compare_adam_step("cpu")


def test_what_derives_from_online_and_does_something_else_is_asked_itself() -> None:
    class Lazy(Online):
        def _learn(self, x: Tensor, y: Labels) -> None: ...

    class Cosine(Online):
        def _scores(self, x: Tensor) -> Tensor:
            return F.normalize(super()._scores(x), dim=-1)

    class Cached(Online):
        @functools.cached_property
        def rate_of_one(self) -> float:  # type: ignore[override]
            return 0.0

    class Renamed(Online):
        card = replace(Online.card, what="the same")

    settings = GradientSettings(outputs=CLASSES)
    taken = [kind.in_step(Head(WIDTH), settings, CLASSES) for kind in (Lazy, Cosine, Cached, Renamed)]
    assert taken == [Lazy, Cosine, Cached, HeadInStep]
    with pytest.raises(TypeError, match="answers by its own _scores"):
        type("Other", (Online,), {"scores": lambda self, x: x})
    for kind, lasting in ((Cosine, False), (Renamed, True)):
        learner = kind(Head(WIDTH), GradientSettings())
        learner.learn(torch.ones(1, WIDTH), np.array([0]))
        assert learner.snapshot().lasting == lasting
