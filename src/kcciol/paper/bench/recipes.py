"""`kcciol bench recipes`: one meta-step of each phase of every preset of the paper, and what all its steps take.

Images are drawn or noise: what a step costs does not depend on what they show. Members that train together, those of
two seeds of Table 4 and of the generated digits, are timed together; where some are alike until the end of a phase, as
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kcciol.config import Config, preset, preset_values
from kcciol.data.classset import ClassSet
from kcciol.engine.device import pick_device, precision
from kcciol.engine.graph import capture
from kcciol.engine.record import record
from kcciol.meta.step import MetaStep
from kcciol.paper.bench.step import images_of, milliseconds, step_of
from kcciol.paper.ensemble.settings import Fork, MemberConfig
from kcciol.paper.ensemble.step import MemberStep
from kcciol.paper.ensemble.train import masks
from kcciol.paper.gan.digits import BASE
from kcciol.paper.gan.train import kind as generation
from kcciol.paper.presets import PROBLEMS, member
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.paper.sine.train import KIND as REGRESSION
from kcciol.paper.studies import gan, sine
from kcciol.serialization import to_dict

PRESETS = (
    "omniglot-paper", "omniglot", "mini-imagenet-literal", "mini-imagenet", "cifar100-literal", "cifar100",
    "sine-literal", "sine", "mnist-gan",
)  # fmt: skip
SEEDS = (0, 1)


def measure(name: str, steps: int, device_name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Times of one preset, or of all that make the paper's tables (on a CPU: of preset quickstart)."""
    device = pick_device(device_name)
    names = (name,) if name else PRESETS if device.type == "cuda" else ("quickstart",)
    found = {}
    for one in names:
        values = preset_values(one)
        measured = _members if values.get("problem") in PROBLEMS else _classes
        with precision(values.get("engine", {}).get("precision", "float32"), device):
            found[one] = measured(one, steps, device)
        phases = ", ".join(f"{ms:.3f}" for ms in found[one]["ms"])
        together = f", {found[one]['members']} trained together" if found[one]["members"] > 1 else ""
        say(f"{one}{together}: {phases} ms a step, phase by phase; {found[one]['recipe_s']:.1f} s in all")
    return {"presets": found, "record": record()}


def _classes(name: str, steps: int, device: torch.device) -> dict[str, Any]:
    config = preset(name)
    base = images_of(config)
    return _times([config], lambda number: step_of(config, base, number, device), steps, device)


def _members(name: str, steps: int, device: torch.device) -> dict[str, Any]:
    config = member(preset_values(name))
    members: Sequence[MemberConfig]
    if isinstance(config, RegressionConfig):
        kind = REGRESSION
        sizes = {"sine": config.sine, "net": config.net, "engine": config.engine}
        sizes |= {f"phase{i}": p for i, p in enumerate(config.phases, 1)}
        printed = dataclasses.replace(sine.PAPER, **sizes)  # type: ignore[arg-type]
        members = list(sine.variants(printed, SEEDS, config.order).values())  # all of Table 4 of this order
    else:
        noise = torch.randint(0, 256, (len(BASE), 100, 1, 32, 32), dtype=torch.uint8)
        base = ClassSet(noise, torch.full((len(BASE),), 100), tuple(map(str, BASE)))
        kind = generation(base, BASE, device.type)
        members = list(gan.variants(config, SEEDS).values())
    net = kind.net(config)

    def step(number: int) -> MemberStep:
        some = [_longer(members[i], number) for i in Fork.of(members, number).firsts]
        Theta = torch.stack([net.init(m.seed) for m in some]).to(device)
        mask = masks(net, Theta, some) if any(m.phases[number - 1].lam for m in some) else None
        return kind.step(net, some, number, Theta, mask)

    return _times(members, step, max(1, steps // 10), device)


def _longer(config: MemberConfig, number: int) -> MemberConfig:
    """A phase that does not end while it is timed."""
    changed: Any = {f"phase{number}": dataclasses.replace(config.phases[number - 1], steps=10**5)}
    return dataclasses.replace(config, **changed)


def _times(
    members: Sequence[Config | MemberConfig],
    step: Callable[[int], MetaStep | MemberStep],
    repeats: int,
    device: torch.device,
) -> dict[str, Any]:
    """Of a step of each phase that has some, and of all its steps. step: that of a phase, of all members."""
    steps = {number: phase.steps for number, phase in enumerate(members[0].phases, 1) if phase.steps}
    made = map(step, steps)
    times = [milliseconds(capture(one) if device.type == "cuda" else one, device, repeats) for one in made]
    return {
        "steps": list(steps.values()),
        "ms": times,
        "recipe_s": sum(count * ms for count, ms in zip(steps.values(), times, strict=True)) / 1000,
        "members": len(members),
        "config": to_dict(members[0]),
    }
