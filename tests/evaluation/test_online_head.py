"""The batched heads against Algorithm 4 as one would first write it: a module, autograd, torch.optim, one example."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kcciol.config import EvaluationConfig
from kcciol.evaluation import learning
from kcciol.evaluation.features import with_one
from kcciol.evaluation.learning import learn_streams
from kcciol.evaluation.online import Layer, LinearHead, Optimizer
from kcciol.evaluation.start import Start

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
    query = images(6, 3)

    for copies, seen, head in learn_streams(streams, trajectories, rates, with_one(train), maker, optimizer):
        assert copies == slice(0, 3)
        if seen != CLASSES:
            continue
        for copy in range(3):
            module = plain_module(layers, copy, widths)
            plain_learn(module, train, streams[copy].tolist(), float(rates[copy]), optimizer)
            wanted = module(query.flatten(0, 1)).detach()
            got = head.scores(slice(copy, copy + 1), with_one(query.flatten(0, 1)[None]))[0]
            got = torch.cat([got, got[:, -1:].expand(-1, wanted.shape[1] - got.shape[1])], dim=1)  # rows kept as one
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


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
    train, streams = with_one(images()), torch.stack([torch.randperm(6)[:CLASSES] for _ in range(7)])
    rates, numbers = torch.logspace(-3, -1, 7, dtype=torch.float64), torch.arange(7)

    def run() -> list[tuple[slice, Tensor]]:
        return [
            (copies, head.scores(slice(None), train[streams[copies, -1]]))
            for copies, seen, head in learn_streams(streams, numbers, rates, train, maker, "adam")
            if seen == CLASSES
        ]

    whole = run()
    monkeypatch.setitem(learning.BUDGET, "cpu", 3 * sum(r * c for r, c in maker.shapes) * 4 * 8)
    parts = run()
    assert [copies for copies, _ in parts] == [slice(0, 3), slice(3, 6), slice(6, 7)]
    torch.testing.assert_close(torch.cat([p for _, p in parts]), whole[0][1], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_each_example_exactly_once_in_order(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature that names the image shows what the head was given, and when."""
    train = torch.arange(6.0)[:, None, None] * 10 + torch.arange(3.0)[None, :, None]  # (6, 3, 1): class * 10 + image
    given: list[tuple[int, list[float]]] = []
    learn = LinearHead.learn

    def spy(self: LinearHead, images: Tensor, label: int) -> None:
        given.append((label, images[0, :, 0].tolist()))
        learn(self, images, label)

    monkeypatch.setattr(LinearHead, "learn", spy)
    maker = Start({"weight": torch.zeros(3, 1)}, EvaluationConfig(), 3, "report", 1)
    stream, numbers, rates = torch.tensor([[4, 0, 2]]), torch.zeros(1, dtype=torch.long), torch.full((1,), 0.1)
    for _copies, seen, head in learn_streams(stream, numbers, rates, with_one(train), maker, optimizer):
        assert isinstance(head, LinearHead)
        assert head.layer.steps == 3 * seen
    assert given == [(0, [40.0, 41.0, 42.0]), (1, [0.0, 1.0, 2.0]), (2, [20.0, 21.0, 22.0])]


def compare_fused(device: str, copies: int = 3, outputs: int = 9, width: int = 600, samples: int = 3) -> None:
    """The Triton kernel against torch's operations, three classes, both optimizers, rows alike or not."""
    train = with_one(images(copies + 2, samples, width).float().to(device))
    rates = torch.logspace(-4, -3, copies, device=device)  # at ten times these, float32 itself is chaotic
    start = torch.linspace(-0.01, 0.01, outputs * train.shape[2], device=device).view(outputs, -1)
    optimizers: tuple[Optimizer, ...] = ("adam", "sgd")
    for optimizer, alike in product(optimizers, (False, True)):
        heads = [
            LinearHead([(start * (not alike)).repeat(copies, 1, 1)], rates, optimizer, alike, fused)
            for fused in (False, True)
        ]
        for label, head in product(range(3), heads):
            head.learn(train[label : label + copies], label)
        plain, fused = (head.scores(slice(None), train[:copies]) for head in heads)
        assert plain.shape[2] == (4 if alike else outputs)
        torch.testing.assert_close(fused, plain, rtol=2e-4, atol=2e-4)
        assert [head.layer.steps for head in heads] == [3 * samples] * 2


def compare_adam_step(device: str) -> None:
    """The Triton kernel of one Adam step against torch's operations, with slices as a hidden layer has them."""
    torch.manual_seed(0)
    weight, rates = torch.randn(3, 7, 48).to(device), torch.tensor([0.1, 0.2, 0.3]).to(device)
    layers = [Layer(weight.clone(), rates, "adam", kernel=kernel) for kernel in (False, True)]
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
