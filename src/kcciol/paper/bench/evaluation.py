"""`kcciol bench evaluate`: the online evaluation against a plain per-example loop, and at full size on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from kcciol.config import EvaluationConfig, preset
from kcciol.data import load
from kcciol.data.classset import ClassSet
from kcciol.encoders.run import Representation
from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.evaluation import Examples, evaluate
from kcciol.evaluation.protocol import Scenario, choose_settings
from kcciol.evaluation.stream import draw
from kcciol.learners.model import Head
from kcciol.nets.pixels import to_unit
from kcciol.paper.bench.naive import network
from kcciol.random import seeded
from kcciol.serialization import to_dict

CLASSES, RATE = 50, 1e-3


def measure(device_name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds, on the device; the comparison with the plain loop is always on the CPU."""
    device = pick_device(device_name)
    result = _against_plain_loop(say)
    if device.type == "cuda":
        result |= _full_size(device, say)
    return {**result, "record": record()}


def _against_plain_loop(say: Callable[[str], None]) -> dict[str, Any]:
    """One trajectory of 50 classes with the quickstart's net, each way five times in turn; the fastest of each."""
    config = preset("quickstart")
    data = load(config.data)
    novel = data.novel.classes(0, CLASSES)  # neither way need look at more
    representation = Representation.untrained(config, data.base)
    settings = EvaluationConfig(classes=(CLASSES,), trajectories=1, rates=(RATE,), curve_points=1)
    plain, ours, accuracies = [], [], []
    for _ in range(5):
        began = time.perf_counter()
        accuracy = _plain_loop(representation, novel)
        plain.append(time.perf_counter() - began)
        began = time.perf_counter()
        evaluation = evaluate(representation.split_features(novel, 15, 5), representation.W, settings)
        ours.append(time.perf_counter() - began)
        accuracies.append((accuracy, evaluation.classes[CLASSES].test.mean))
    say(f"plain loop {min(plain):.2f} s, ours with features {min(ours):.2f} s; accuracies {accuracies[0]}")
    return {
        "plain_loop_s": min(plain),
        "ours_s": min(ours),
        "times_faster": min(plain) / min(ours),
        "plain_loop_accuracy": accuracies[0][0],
        "ours_accuracy": accuracies[0][1],
        "config": to_dict(config),
        "seed": config.seed,
    }


def _plain_loop(representation: Representation, novel: ClassSet) -> float:
    """Algorithm 4 with autograd and torch's Adam, image by image; accuracy in percent on the held-out images."""
    classes = draw(0, "report", len(novel), CLASSES, 1)[0]
    problem = representation.problem
    theta = problem.theta(representation.Theta)
    W = {"weight": torch.zeros(CLASSES, problem.encoder.features), "bias": torch.zeros(CLASSES)}
    optimizer = torch.optim.Adam([w.requires_grad_() for w in W.values()], lr=RATE)
    images = to_unit(novel.images[classes], torch.float32)
    for label in range(CLASSES):
        for image in images[label, :15]:
            optimizer.zero_grad()
            logits = network(problem, theta, W, image[None])
            F.cross_entropy(logits, torch.tensor([label])).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    right = 0
    with torch.no_grad():
        for label in range(CLASSES):
            right += int((network(problem, theta, W, images[label, 15:20]).argmax(1) == label).sum())
    return 100 * right / (5 * CLASSES)


def _full_size(device: torch.device, say: Callable[[str], None]) -> dict[str, Any]:
    """50 trajectories x 8 rates of each length with Adam, on features of the paper's width."""
    generator = seeded(0)
    features = torch.rand(650, 20, 2304, generator=generator).sub_(0.7).relu_().to(device)
    novel = Examples(features[:, :15], features[:, 15:])
    W = {"weight": torch.zeros(963, 2304, device=device), "bias": torch.zeros(963, device=device)}
    settings = EvaluationConfig(
        search_trajectories=50, rule="leaky", rates=tuple(10**-i for i in (2, 2.5, 3, 3.25, 3.5, 3.75, 4, 4.5))
    )

    def search(n: int) -> None:
        """What is timed is learning to choose a rate, without the trajectories that are reported."""
        choose_settings(Scenario(novel, Head(novel.width), W=W), settings, n)

    search(2)  # warm up
    seconds = {}
    for n in settings.classes:
        torch.cuda.synchronize()
        began = time.perf_counter()
        search(n)
        torch.cuda.synchronize()
        seconds[str(n)] = time.perf_counter() - began
        say(f"{n} classes, 50 trajectories x {len(settings.rates)} rates: {seconds[str(n)]:.2f} s")
    return {"full_size_s": sum(seconds.values()), "full_size_by_classes_s": seconds}
