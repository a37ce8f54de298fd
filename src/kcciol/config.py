"""What an experiment is: frozen dataclasses, read from and written to TOML.

A preset is a TOML file beside this one (`presets/`); a config file of one's own has the same shape. An unknown key
or a value out of range is an error that names the key. The docstring under each field is its `--help` text.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from kcciol.errors import UserError, quoted
from kcciol.serialization import from_dict, read_toml


def require(ok: bool, key: str, value: object, rule: str) -> None:
    if not ok or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{key} is {quoted(value)}, but must be {rule}.")


MOST = 10**6  # of anything that is counted
GradientOrder = Literal["exact", "first"]  # of the meta-gradient
FASTEST = 3e38  # rate, or weight of a term, that a float32 can hold
GIVEN = "given"  # net.module of a network that was an object in Python, which no file can name


def require_range(config: object, section: str, low: float, high: float, *names: str) -> None:
    """Refuse settings of a section that are not from low to high."""
    high_words = f"{high:,}" if isinstance(high, int) else f"{high:g}"
    for name in names:
        value = getattr(config, name)
        require(low <= value <= high, f"{section}.{name}".removeprefix("."), value, f"between {low:,} and {high_words}")


@dataclass(frozen=True)
class DataConfig:
    """Which images, and which of them may be learned from."""

    name: str = "omniglot"
    """The data set: `kcciol data list` names them; `folder` reads images of your own, one folder a class."""
    root: str = ""
    """Where the files lie; by default the folder that the variable KCCIOL_DATA names, else ./data."""
    size: int = 84
    """Images are brought to size x size pixels."""
    base_classes: int = 963
    """Meta-training may use the first so many base classes; 0 means all."""
    validation_classes: int = 0
    """Of those, the last so many are kept out of training, to choose settings on."""
    novel_classes: int = 0
    """How many novel classes there are; 0 means all that the data set has (glyphs and folder need a number)."""
    samples: int = 20
    """glyphs only: images drawn of each class."""
    train_samples: int = 15
    """Meta-training uses the first so many images of a base class; 0 means all."""
    seed: int = 0
    """glyphs only: another seed is another world of characters."""

    def __post_init__(self) -> None:
        require_range(self, "data", 8, 1024, "size")
        require_range(self, "data", 0, MOST, "base_classes", "novel_classes", "validation_classes", "train_samples")
        require_range(self, "data", 2, MOST, "samples")
        require(0 <= self.seed < 2**63, "data.seed", self.seed, "0 or more (and below 2^63)")


@dataclass(frozen=True)
class NetConfig:
    """h_theta, a stack of 3x3 convolutions without padding, and g_W, the classifier on its features."""

    channels: int = 256
    """Channels of every convolution."""
    strides: tuple[int, ...] = (2, 1, 2, 1, 2, 2)
    """One convolution for each stride."""
    hidden: int = 0
    """Width of W's hidden layer; 0 means that W is linear."""
    outputs: int = 0
    """Rows of W in meta-training; 0 means one for each base class."""
    gate: int = 0
    """Channels of a second network that gates the features (ANML's neuromodulation); 0 means that there is none."""
    module: str = ""
    """package.module:factory of a network of your own instead of these convolutions; it is called with (c, h, w)."""

    def __post_init__(self) -> None:
        ok = self.module in ("", GIVEN) or re.fullmatch(r"[\w.]+:[\w.]+", self.module) is not None
        require(ok, "net.module", self.module, "package.module:factory, or empty")
        require_range(self, "net", 0, 2**14, "gate")
        require(not (self.gate and self.module), "net.gate", self.gate, "0 with a net.module")
        require_range(self, "net", 1, 2**14, "channels")
        require(len(self.strides) >= 1, "net.strides", self.strides, "at least one stride")
        require(all(s in (1, 2) for s in self.strides), "net.strides", self.strides, "a list of 1s and 2s")
        require_range(self, "net", 0, 2**16, "hidden")
        require_range(self, "net", 0, 2**20, "outputs")


@dataclass(frozen=True)
class TrajectoryConfig:
    """tau_tr: `support` images of each of `classes` classes, class after class. tau_val: `query` unseen images of
    each of those classes, and `remember` images drawn from all base classes."""

    classes: int = 1
    """Classes in a trajectory, learned one after another; 0 for losses without an inner loop."""
    support: int = 10
    """Images of each class in tau_tr; each is one step of the inner loop."""
    query: int = 1
    """Held-out images of each class in tau_val."""
    remember: int = 10
    """Images of any base class in tau_val."""
    count: int = 1
    """Trajectories in one meta-step; their losses are averaged."""

    def __post_init__(self) -> None:
        require_range(self, "trajectory", 1, 2**16, "support", "query", "count")
        require_range(self, "trajectory", 0, 2**16, "classes", "remember")


@dataclass(frozen=True)
class MetaConfig:
    """What is minimised, and how its gradient is taken."""

    loss: Literal["online", "episodes", "supervised", "sparse"] = "online"
    """online: after a trajectory (Algorithm 2); episodes: MAML-Rep; supervised; sparse: with a penalty (SRNN)."""
    episode_steps: int = 5
    """episodes: inner steps, each on the mean loss of all support images."""
    relabel: bool = False
    """episodes: the classes of an episode are 0, 1, ... whoever they are, as in few-shot learning."""
    sparsity: float = 0.1
    """sparse: mean activation above which a feature is penalised."""
    adapts: Literal["W", "net"] = "W"
    """online: what the inner loop changes: W alone, or the network too, as in ANML: slow, and without constraint."""
    order: GradientOrder = "exact"
    """exact differentiates through the inner loop; first takes its updates as constants."""
    inner: Literal["lowrank", "plain"] = "lowrank"
    """Two implementations of the same inner loop: plain is the definition, lowrank is fast."""
    reset: Literal["none", "draw", "zero", "all"] = "zero"
    """Before a meta-step: leave W; re-draw the rows of its trajectories' classes; zero those rows; re-draw all of W."""
    clamp: float = 5.0
    """Clamp each element of the meta-gradient to plus or minus this; 0 means off."""

    def __post_init__(self) -> None:
        require_range(self, "meta", 0, FASTEST, "clamp")
        require_range(self, "meta", 1, MOST, "episode_steps")
        require(0 < self.sparsity <= FASTEST, "meta.sparsity", self.sparsity, f"above 0 and at most {FASTEST:g}")


@dataclass(frozen=True)
class MaskConfig:
    """Which parameters are important (Algorithm 3); fixed for phase 3."""

    delta: float = 0.5
    """Share of the parameters that are important."""
    scope: Literal["global", "tensor"] = "global"
    """One threshold for all parameters together, or one for each tensor."""
    which: Literal["top", "random", "bottom", "fisher"] = "top"
    """The largest, as in the paper; as many at random; the smallest; images only: of the largest squared gradient."""
    soft: bool = False
    """From 1 for the most important down to 0, by rank, in place of 1 for a share of them and 0 for the others."""

    def __post_init__(self) -> None:
        require_range(self, "mask", 0, 1, "delta")


@dataclass(frozen=True)
class PhaseConfig:
    """One call of Algorithm 2."""

    steps: int = 0
    """Meta-steps; 0 leaves the phase out."""
    alpha: float = 0.01
    """Rate of the inner loop's SGD."""
    beta: float = 1e-4
    """Rate of the meta-optimiser, Adam, whose state is new in each phase."""
    gamma: float = 0.0
    """Weight of the l1 norm of all parameters."""
    lam: float = 0.0
    """lambda, weight of the constraint: the squared norm of the meta-gradient of the important parameters."""


@dataclass(frozen=True)
class ClassifierPhaseConfig(PhaseConfig):
    """A phase on images, with the usual regularisers to compare the paper's with; by default there are none."""

    decay: float = 0.0
    """Decoupled weight decay, as AdamW's: a step takes beta x decay of every parameter away."""
    dropout: float = 0.0
    """Share of the features of each image that are set to zero in training; the others are scaled up."""
    shift: int = 0
    """Images are moved by up to so many pixels, across and along; what comes in repeats the edge."""
    flip: bool = False
    """Half of the images, drawn anew each time, are mirrored, left to right."""
    turn: float = 0.0
    """Images are turned by up to so many degrees."""


@dataclass(frozen=True)
class EngineConfig:
    """Where and how the steps are run. Nothing here changes what is computed, but for rounding."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the GPU when there is one."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """tf32, GPU: operands of products are rounded. bf16, GPU, with recipes CPU too: activations are bfloat16."""
    graph: bool = True
    """On a GPU, run each step as one CUDA graph."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    keep: bool = False
    """Keep what was learned by each checkpoint too, beside the ends of phases: phase1-step1000.safetensors."""
    log_every: int = 100
    """Steps between lines of metrics.jsonl."""
    tensorboard: bool = False
    """Write TensorBoard events too (needs the extra `tensorboard`)."""

    def __post_init__(self) -> None:
        require_range(self, "engine", 1, 10**9, "checkpoint_every", "log_every")


@dataclass(frozen=True)
class EvaluationConfig:
    """Algorithm 4: novel classes, one example at a time, theta frozen, W learned from its start; or another learner."""

    classes: tuple[int, ...] = (10, 50, 100, 150, 200)
    """Lengths of the trajectories, in classes."""
    lengths: Literal["apart", "prefixes"] = "apart"
    """apart: trajectories and a choice of settings for each length; prefixes: the longest ones, measured on the way."""
    trajectories: int = 50
    """Trajectories drawn for each length."""
    train_samples: int = 15
    """Images of each class that are learned from, each once."""
    test_samples: int = 5
    """Images of each class that are held out."""
    redraw: bool = False
    """Draw these images anew for each trajectory, out of all of the class; else the first so many serve for all."""
    order: Literal["class", "task", "shuffled"] = "class"
    """class: class after class. task: the images of a task in random order. shuffled: all images in random order."""
    task_classes: int = 1
    """Classes in a task; learners that make use of it are told when a task ends."""
    budget_images: int = 0
    """Replay learners keep as many examples as fit into the bytes of so many images; 0: as their settings say."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What updates W."""
    rates: tuple[float, ...] = (1e-2, 3.2e-3, 1.8e-3, 1e-3, 5.6e-4, 3.2e-4, 1.8e-4, 1e-4, 5.6e-5, 3.2e-5)
    """Rates to choose from."""
    rule: Literal["stream", "holdout", "base", "leaky"] = "stream"
    """Settings are chosen on: stream: learned images; holdout: some of them; base: base classes; leaky: test images."""
    search_trajectories: int = 20
    """Trajectories that the choice is made on; others than those reported."""
    search_classes: int = 0
    """They hold at most so many classes; 0: as many as the trajectories reported."""
    start: Literal["zero", "kaiming", "meta"] = "zero"
    """W before the first example: zero, a random draw, or as meta-learned."""
    reinit: Literal["last", "all"] = "last"
    """With a hidden layer: start anew in the last layer only (the rest of W as meta-learned), or in all of W."""
    outputs: int = 0
    """Rows of W; 0 means one for each class of the trajectory."""
    curve_points: int = 10
    """How often accuracy over all classes seen so far is measured on the way."""
    seed: int = 0
    """Draws the trajectories."""

    def __post_init__(self) -> None:
        require(
            len(set(self.classes)) == len(self.classes) > 0 and 1 <= min(self.classes) <= max(self.classes) <= MOST,
            "evaluation.classes",
            self.classes,
            f"different numbers between 1 and {MOST:,}",
        )
        require(
            len(self.rates) > 0 and all(0 < rate <= 1e6 for rate in self.rates),
            "evaluation.rates",
            self.rates,
            "one or more positive numbers, at most 1e6",
        )
        counts = [
            "trajectories",
            "train_samples",
            "test_samples",
            "search_trajectories",
            "curve_points",
            "task_classes",
        ]
        require_range(self, "evaluation", 1, MOST, *counts)
        require_range(self, "evaluation", 0, MOST, "budget_images", "search_classes")
        for n in self.classes:
            if n % self.task_classes:
                raise UserError(
                    f"evaluation.classes: {n} classes are no whole number of tasks of {self.task_classes}: "
                    "choose others, or another evaluation.task_classes."
                )
        require_range(self, "evaluation", 0, 2**20, "outputs")
        require(0 <= self.seed < 2**63, "evaluation.seed", self.seed, "0 or more (and below 2^63)")


def require_phases(phases: Sequence[PhaseConfig]) -> None:
    for number, phase in enumerate(phases, 1):
        require_range(phase, f"phase{number}", 0, 10**8, "steps")
        require_range(phase, f"phase{number}", 0, FASTEST, "alpha", "beta", "gamma", "lam")


def require_regularisers(phases: Sequence[ClassifierPhaseConfig], size: int, adapts_net: bool) -> None:
    """Refuse what no phase on images of so many pixels can do."""
    for number, phase in enumerate(phases, 1):
        name = f"phase{number}"
        require_range(phase, name, 0, FASTEST, "decay")
        require(phase.beta * phase.decay <= 1, f"{name}.decay", phase.decay, f"at most 1 / {name}.beta")
        require(0 <= phase.dropout < 1, f"{name}.dropout", phase.dropout, "0 or more and below 1")
        require(not (phase.dropout and adapts_net), f"{name}.dropout", phase.dropout, "0 with meta.adapts = 'net'")
        require(0 <= phase.shift < size, f"{name}.shift", phase.shift, f"0 or more and below data.size, {size}")
        require_range(phase, name, 0, 180, "turn")


@dataclass(frozen=True)
class Config:
    """A whole experiment: data, net, three phases of meta-training, evaluation."""

    seed: int = 0
    """A run is a function of its config and this number."""
    representation: str = "kcciol"
    """How theta is learned: `kcciol list representations` names them. Each is a choice of the settings below."""
    data: DataConfig = field(default_factory=DataConfig)
    net: NetConfig = field(default_factory=NetConfig)
    trajectory: TrajectoryConfig = field(default_factory=TrajectoryConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    mask: MaskConfig = field(default_factory=MaskConfig)
    phase1: ClassifierPhaseConfig = field(default_factory=ClassifierPhaseConfig)
    phase2: ClassifierPhaseConfig = field(default_factory=ClassifierPhaseConfig)
    phase3: ClassifierPhaseConfig = field(default_factory=ClassifierPhaseConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", self.seed, "0 or more (and below 2^63)")
        plain = self.meta.loss in ("supervised", "sparse")
        rule = f"0 with meta.loss = {self.meta.loss!r}" if plain else "at least 1"
        require((self.trajectory.classes == 0) == plain, "trajectory.classes", self.trajectory.classes, rule)
        if plain:
            require(self.trajectory.remember >= 1, "trajectory.remember", self.trajectory.remember, "at least 1")
            require(self.meta.reset == "none", "meta.reset", self.meta.reset, f"'none' with {self.meta.loss} training")
        if self.meta.adapts == "net":
            ok = self.meta.loss == "online" and not any(phase.lam for phase in self.phases)
            require(ok, "meta.adapts", self.meta.adapts, "'W' unless meta.loss is 'online' and lambda is 0")
            require(not self.net.module, "meta.adapts", self.meta.adapts, "'W' with a net.module")
        if self.meta.relabel:
            ok = self.meta.loss == "episodes" and self.trajectory.remember == 0 and self.meta.reset in ("none", "all")
            rule = "false unless meta.loss is 'episodes', trajectory.remember 0 and meta.reset 'none' or 'all'"
            require(ok, "meta.relabel", self.meta.relabel, rule)
        require_phases(self.phases)
        require_regularisers(self.phases, self.data.size, self.meta.adapts == "net")

    @property
    def phases(self) -> tuple[ClassifierPhaseConfig, ClassifierPhaseConfig, ClassifierPhaseConfig]:
        return (self.phase1, self.phase2, self.phase3)

    @property
    def total_steps(self) -> int:
        return sum(p.steps for p in self.phases)


class OtherKind(UserError):
    """A config of another kind than is asked for; nothing is wrong with it."""


def read(path: Path, whole: bool = False) -> Config:
    """A config from a TOML file. whole: it is of a run, which leaves out no section."""
    values = read_toml(path)
    sections = [f.name for f in fields(Config) if f.name not in values and f.default_factory is not MISSING]
    if whole and sections and "recipe" not in values:
        raise UserError(f"The config file {path} has no section [{sections[0]}], so it is not as the run wrote it.")
    return classification(values, str(path))


def classification(values: Mapping[str, Any], name: str) -> Config:
    """A config from its values; those of another problem have another shape (see `kcciol.paper.presets`)."""
    if "problem" in values:
        raise OtherKind(f"{name} is of the problem {values['problem']!r}: only those of classification go here.")
    if "recipe" in values:
        raise OtherKind(
            f"{name} is the recipe of an encoder, and no config of three phases: `kcciol train` takes it, in Python "
            "kcciol.recipe and kcciol.train_encoder."
        )
    return from_dict(Config, values)


@functools.cache
def presets() -> dict[str, str]:
    """The presets by name, each with the comment that opens its file."""
    folder = resources.files("kcciol") / "presets"
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            first = entry.read_text(encoding="utf-8").splitlines()[0]
            found[entry.name.removesuffix(".toml")] = first.removeprefix("#").strip()
    return found


def preset(name: str) -> Config:
    """A preset by its name.

    >>> preset("quickstart").data.name
    'glyphs'
    """
    return classification(preset_values(name), f"The preset {name}")


def preset_values(name: str) -> dict[str, Any]:
    """What a preset's file says."""
    if not isinstance(name, str) or name not in presets():
        run = " and no run there" if "/" in str(name) else ""
        raise UserError(f"There is no preset {quoted(name)}{run}; presets: {', '.join(presets())}.")
    return tomllib.loads((resources.files("kcciol") / "presets" / f"{name}.toml").read_text(encoding="utf-8"))
