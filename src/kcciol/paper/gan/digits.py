"""MNIST as a problem of generation: 5, 6 and 7 are novel, and learned in sequence by W of the generator and of the
critic; a classifier says what is generated then.

No rate is chosen: every rate of the grid is shown, since with three novel digits there is nothing to choose on.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.config import DataConfig
from kcciol.data import load
from kcciol.data.classset import ClassSet, Splits
from kcciol.nets.pixels import from_signed, to_signed
from kcciol.optim import adam_, corrections
from kcciol.paper.ensemble import Affine
from kcciol.paper.gan.network import LabelledHead, Networks
from kcciol.paper.gan.outer import step_gradients
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.random import keyed, keyed_normal, keyed_uniform

BASE, NOVEL = (0, 1, 2, 3, 4, 8, 9), (5, 6, 7)
RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
BETAS = 0.5, 0.9  # of Adam, as in training
_REAL, _LEARN, _SHOW, _BETWEEN = range(10, 14)


def digits(root: str) -> Splits:
    """32x32 images of base and novel digits."""
    return load(DataConfig(name="mnist", root=root, size=32, base_classes=0, train_samples=0))


def evaluate(
    nets: Networks,
    Theta: Tensor,
    novel: ClassSet,
    labels: list[int],
    seed: int,
    rate: float,
    batches: int = 25,
    batch: int = 64,
    shown: int = 100,
) -> list[list[Tensor]]:
    """What one member's Theta (length,) makes: images[i][j] (n, pixels), -1..1, of the j-th class after the i-th was
    learned. Each class brings `batches` batches of real images, seen once; each is one step of Adam on W of both
    networks. theta stays as it is."""
    device, vector = Theta.device, Theta[None]
    thetas = [nets.theta(vector, name) for name in ("G", "D")]
    W = [t.clone() for name in ("G", "D") for t in nets.head(vector, name).tensors]
    moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in W]
    steps, made = 0, []
    for position, label in enumerate(labels):
        order = keyed_uniform(keyed(torch.tensor(seed), _REAL, position), int(novel.counts[position])).argsort()
        pixels = to_signed(novel.images[position, order[: batches * batch]].flatten(1))
        for number, real in enumerate(torch.split(pixels.to(device), batch)):
            key = keyed(torch.tensor(seed, device=device), _LEARN, position, number)
            noise = keyed_normal(key, len(real) * nets.gan.noise).view(1, len(real), -1)
            share = keyed_uniform(keyed(key, _BETWEEN), len(real))[None, :, None]
            steps += 1
            label_of = torch.full((1, len(real)), label, device=device)
            gradients = step_gradients(nets, thetas, W, real[None], noise, label_of, share)
            for tensor, g, (m, v) in zip(W, gradients, moments, strict=True):
                adam_(tensor, g, m, v, *corrections(rate, steps, BETAS), BETAS)
        key = keyed(torch.tensor(seed, device=device), _SHOW)
        noise = keyed_normal(key, shown * nets.gan.noise).view(1, shown, -1)
        made.append([_generate(nets, thetas[0], LabelledHead(*W[:3]), noise, j)[0] for j in labels[: position + 1]])
    return made


def _generate(nets: Networks, theta: list[Affine], head: LabelledHead, noise: Tensor, label: int) -> Tensor:
    labels = torch.full(noise.shape[:2], label, device=noise.device)
    return nets.apply(theta, head, noise, labels).tanh()


def measure(config: GenerationConfig, Theta: Tensor, novel: ClassSet, judge: nn.Module, batches: int) -> dict[str, Any]:
    """For every rate: right[i][j], the share of images of the j-th class, after the i-th, that look like it; and some
    images of all classes at the end."""
    found: dict[str, Any] = {"rates": {}}
    side, nets = novel.image_shape[-1], Networks(config.gan, math.prod(novel.image_shape))
    for rate in RATES:
        made = evaluate(nets, Theta, novel, list(NOVEL), config.seed, rate, batches=batches)
        right = [
            [float((judge(images).argmax(-1) == NOVEL[j]).double().mean()) for j, images in enumerate(after)]
            for after in made
        ]
        shown = torch.stack([images[:8] for images in made[-1]])  # (3, 8, pixels)
        found["rates"][f"{rate:g}"] = {"right": right, "images": pack(from_signed(shown).view(3, 8, side, side))}
    return found


def pack(images: Tensor) -> dict[str, Any]:
    """Images (uint8) as a few words for JSON: one number by number would take ten times as much."""
    squeezed = zlib.compress(images.cpu().contiguous().numpy().tobytes(), 9)
    return {"shape": list(images.shape), "zlib, base64": base64.b64encode(squeezed).decode()}


def unpack(words: Mapping[str, Any]) -> Tensor:
    """The images that `pack` has packed."""
    flat = bytearray(zlib.decompress(base64.b64decode(words["zlib, base64"])))
    return torch.frombuffer(flat, dtype=torch.uint8).view(words["shape"])


def classifier(data: Splits, device: torch.device, epochs: int) -> tuple[nn.Module, float]:
    """A network that tells all real digits apart, and its accuracy (%) on a tenth of them that it was not shown."""
    parts, labels = [], []
    for split, numbers in ((data.base, BASE), (data.novel, NOVEL)):
        for c, number in enumerate(numbers):
            images = split.images[c, : int(split.counts[c])].flatten(1)
            parts.append(images)
            labels += [number] * len(images)
    x, y = torch.cat(parts).to(device), torch.tensor(labels, device=device)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        order = torch.randperm(len(x)).to(device)
        net = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    x, y, held = x[order], y[order], len(x) // 10
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for some in torch.split(torch.arange(held, len(x), device=device), 128):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(to_signed(x[some])), y[some])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = (net(to_signed(x[:held])).argmax(-1) == y[:held]).double().mean()
    return net, 100 * float(right)
