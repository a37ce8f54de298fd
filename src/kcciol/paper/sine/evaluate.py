"""Ten novel functions in sequence: the error over those seen so far, after each (Table 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.evaluation.metrics import summarize
from kcciol.paper.sine import network
from kcciol.paper.sine.adjoint import inner_loops
from kcciol.paper.sine.functions import REACH, Functions, draw, inputs
from kcciol.paper.sine.network import Learn, RegressionNetwork
from kcciol.paper.sine.settings import RegressionConfig, SineConfig

PLACES = 1000  # where a function's error is taken, evenly over its range
ROOM = 2**28  # bytes that runs take side by side; those that do not fit in wait for their turn
LEAST = 50  # runs that go side by side all the same: as many as Table 4 has


@dataclass(frozen=True)
class SineErrors:
    """Mean squared errors of R runs: errors[r, i, j] on function j after function i; NaN where j comes later."""

    errors: Tensor

    def seen(self) -> Tensor:
        """(R, slots): the mean over the functions seen so far; infinite where a run has blown up."""
        later = torch.ones(self.errors.shape[1:], dtype=torch.bool).triu(1)
        errors = torch.where(self.errors.isfinite(), self.errors, torch.inf).masked_fill(later, 0.0)
        return errors.sum(-1) / torch.arange(1, errors.shape[1] + 1)

    def to_dict(self) -> dict[str, Any]:
        """By the number of functions seen; of the runs that stayed finite, and how many did not."""
        rows: dict[str, Any] = {}
        for i, values in enumerate(self.seen().unbind(1), 1):
            finite = values[values.isfinite()]
            summary = summarize(finite).to_dict() if len(finite) else {"mean": None, "std": None, "n": 0, "ci95": None}
            rows[str(i)] = {**summary, "diverged": len(values) - len(finite), "by_run": finite.tolist()}
        return rows


def measure(config: RegressionConfig, Theta: Tensor, seed: int, runs: int, rate: float, novel: bool = True) -> Any:
    """The errors of one member, by the number of functions seen (see `SineErrors.to_dict`)."""
    net, learn = RegressionNetwork(config.net, config.sine.slots + 1), inner_loops(Theta.device, exact=True).learn
    return evaluate(net, Theta, config.sine, seed, runs, rate, novel, learn).to_dict()


def evaluate(
    net: RegressionNetwork,
    Theta: Tensor,
    config: SineConfig,
    seed: int,
    runs: int,
    alpha: float,
    novel: bool = True,
    learn: Learn = network.learn,
) -> SineErrors:
    """One member's Theta (length,): W goes on from where it was meta-learned, by SGD, a batch a step.

    Each run has functions, order and examples of its own. novel: functions that training never saw.
    """
    at_once = max(LEAST, ROOM // bytes_of_run(net, config))
    blocks = [range(first, min(first + at_once, runs)) for first in range(0, runs, at_once)]
    errors = [_errors(net, Theta, config, seed, block, alpha, novel, learn) for block in blocks]
    return SineErrors(torch.cat(errors))


def bytes_of_run(net: RegressionNetwork, config: SineConfig) -> int:
    """What a run takes at the most, nearly: its examples, as they are drawn; and W with a step of it and features of
    one function's examples, or what all layers of W say about all functions."""
    shapes = [weight.shape[1:] for weight, _ in net.layers(torch.empty(1, net.layout.length, device="meta"), "W")]
    each, units = config.batches * config.batch, [outputs for outputs, _ in shapes]
    examples = config.slots * (each + config.query) * (net.inputs + 6)
    learning = 3 * sum(map(math.prod, shapes)) + 2 * each * net.features
    asking = config.slots * PLACES * (sum(units) + max(units) + 3)
    return 4 * (examples + max(learning, asking))


def _errors(
    net: RegressionNetwork,
    Theta: Tensor,
    config: SineConfig,
    seed: int,
    numbers: range,
    alpha: float,
    novel: bool,
    learn: Learn,
) -> Tensor:
    """`SineErrors.errors` of the runs with these numbers, side by side."""
    device, slots, each, runs = Theta.device, config.slots, config.batches, len(numbers)
    seeds = torch.tensor([seed], device=device)
    functions = Functions.drawn(seeds, config.novel if novel else config.functions, novel)
    time = torch.tensor(-1, device=device)  # one that training has not
    batch = draw(functions, config, seeds, time, runs, numbers.start)
    theta, W = net.layers(Theta[None], "theta"), net.layers(Theta[None], "W")
    rates = torch.full((runs, 1, 1), alpha, device=device)
    z = ((torch.arange(PLACES, device=device) + 0.5) / PLACES * 2 - 1) * REACH
    truth = functions.at(batch.chosen, z.expand(1, runs, slots, PLACES))[0]  # (R, slots, places)
    errors = torch.full((runs, slots, slots), torch.nan, dtype=torch.float64)
    with torch.no_grad():
        slot = torch.arange(slots, device=device)[:, None].expand(slots, PLACES)
        tests = network.represent(theta, inputs(slots, z.expand(slots, PLACES), slot).view(1, -1, net.inputs))
        learned = [(w.expand(runs, -1, -1), b.expand(runs, -1)) for w, b in W]
        for i in range(slots):
            x, y = (t[0, :, i * each : (i + 1) * each] for t in (batch.x, batch.y))
            features = network.represent(theta, x.reshape(1, -1, net.inputs))
            learned = learn(learned, features.view(runs, each, config.batch, net.features), y, rates)
            asked = tests[:, : (i + 1) * PLACES].expand(runs, -1, -1)
            gaps = network.predict(learned, asked).view(runs, i + 1, PLACES) - truth[:, : i + 1]
            errors[:, i, : i + 1] = gaps.square().mean(-1).double().cpu()
    return errors
