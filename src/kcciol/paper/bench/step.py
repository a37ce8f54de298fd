"""`kcciol bench step`: one meta-step, naive, ours eager and ours as a CUDA graph, in one run."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kcciol.config import ClassifierPhaseConfig, Config, preset
from kcciol.data import DATASETS
from kcciol.data.classset import ClassSet
from kcciol.data.glyphs import glyphs
from kcciol.engine.device import pick_device, precision
from kcciol.engine.graph import capture
from kcciol.engine.record import record
from kcciol.meta.inner import TrajectoryLabels
from kcciol.meta.mask import get_mask
from kcciol.meta.phases import train
from kcciol.meta.step import MetaStep
from kcciol.nets.classification import Classification
from kcciol.paper.bench.naive import naive_loss
from kcciol.serialization import to_dict

ROUNDS = 5  # of timing
_PASSES = {1: 3, 2: 3, 3: 9}  # products a layer and image: forward, two adjoints; with their tangents in phase 3


def measure(name: str, steps: int, device_name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Times of the preset's step; on a GPU also of its whole recipe and of the larger step of preset omniglot."""
    device = pick_device(device_name)
    on_gpu = device.type == "cuda"
    config = preset(name or ("omniglot-paper" if on_gpu else "quickstart"))
    base = images_of(config)
    result: dict[str, Any] = {}
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for number in (1, 2, 3):
        step = step_of(config, base, number, device)
        with precision(config.engine.precision, device):
            eager = milliseconds(step, device, max(3, steps // 20))
            result[f"phase{number}_ms"] = milliseconds(capture(step), device, steps) if on_gpu else eager
        result[f"phase{number}_eager_ms"] = eager
        result[f"phase{number}_tflops"] = flop(config, step, number) / result[f"phase{number}_ms"] / 1e9
        say(f"phase {number}: eager {eager:.2f} ms, as run {result[f'phase{number}_ms']:.3f} ms")
    if on_gpu:
        result["recipe_s"] = _recipe(config, base)
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        say(f"the whole recipe, {config.total_steps} steps with all its checkpoints: {result['recipe_s']:.1f} s")
        large = preset("omniglot")
        for number in (1, 2, 3):
            step = step_of(large, base, number, device)
            key = "large_ms" if number == 1 else f"large_phase{number}_ms"
            with precision(large.engine.precision, device):
                result[key] = milliseconds(capture(step), device, steps)
            result[key.replace("_ms", "_tflops")] = flop(large, step, number) / result[key] / 1e9
            say(f"preset omniglot, phase {number}: {result[key]:.3f} ms")
    result["naive_ms"] = _naive(config, base, device, max(3, steps // 20))
    result["times_faster_phase1"] = result["naive_ms"] / result["phase1_ms"]
    say(f"naive, phase 1: {result['naive_ms']:.2f} ms, {result['times_faster_phase1']:.1f} times ours")
    return {**result, "config": to_dict(config), "seed": config.seed, "record": record()}


def milliseconds(function: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median over rounds of the mean time of one call, after a warm-up."""
    for _ in range(max(1, repeats // 10)):
        function()
    times = []
    for _ in range(ROUNDS):
        _wait(device)
        began = time.perf_counter()
        for _ in range(repeats):
            function()
        _wait(device)
        times.append((time.perf_counter() - began) * 1e3 / repeats)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _recipe(config: Config, base: ClassSet) -> float:
    """Seconds of a whole training run."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        train(config, base, Path(folder) / "run", quiet=True)
        return time.perf_counter() - began


def images_of(config: Config) -> ClassSet:
    """Glyphs, as many as the preset has classes; few of them drawn, the others the same ones shifted: it is quicker."""
    classes, size, samples = config.data.base_classes, config.data.size, config.data.train_samples or 20
    channels = DATASETS.find(config.data.name).channels or 1
    drawn = torch.from_numpy(glyphs(range(min(classes, 48)), range(samples), size, seed=0))
    images = torch.stack([drawn[c % 48].roll((c // 48) * 3, -1) for c in range(classes)])[:, :, None]
    images = images.expand(-1, -1, channels, -1, -1)
    return ClassSet(images, torch.full((classes,), samples), tuple(str(c) for c in range(classes)))


class _EndlessStep(MetaStep):
    """A step that does not run off the end of its block, however often it is called."""

    def __call__(self) -> None:
        super().__call__()
        self.slot.remainder_(len(self.images))


def step_of(config: Config, base: ClassSet, number: int, device: torch.device) -> MetaStep:
    phase: ClassifierPhaseConfig = dataclasses.replace(config.phases[number - 1], steps=10**5)
    problem = Classification(config.net, base.image_shape, len(base))
    Theta = problem.init(config.seed).to(device)
    mask = get_mask(problem.layout, Theta, config.mask) if phase.lam else None
    step = _EndlessStep(problem, base, config, phase, number, Theta, mask)
    step.load_block(0, 0)
    return step


def flop(config: Config, step: MetaStep, number: int) -> float:
    """Floating-point operations of the encoder in one step; the rest is below one hundredth of them."""
    t = config.trajectory.count
    forward, both = t * (step.k + step.s), t * step.s if config.meta.order == "first" else t * (step.k + step.s)
    return 2.0 * sum(step.problem.convolutions.macs()) * (forward + (_PASSES[number] - 1) * both)


def _naive(config: Config, base: ClassSet, device: torch.device, steps: int) -> float:
    """Phase 1 as the public reference code does it: exact, float32 with TF32 products, torch's own Adam, eager."""
    problem = Classification(config.net, base.image_shape, len(base))
    Theta = problem.init(config.seed).to(device).requires_grad_()
    optimizer = torch.optim.Adam([Theta], lr=config.phase1.beta)
    c = config.trajectory
    k, s = c.classes * c.support, c.classes * c.query + c.remember
    images = base.images.flatten(0, 1)[: k + s].to(device)
    y = torch.arange(k + s, device=device) % len(base)
    labels = TrajectoryLabels(y[:k].view(1, k), y[k:].view(1, s))

    def step() -> None:
        optimizer.zero_grad()
        naive_loss(problem, Theta, images, labels, config.phase1.alpha, "exact").backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    with precision("tf32", device):
        return milliseconds(step, device, steps)
