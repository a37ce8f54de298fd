"""What a recipe is: frozen dataclasses, read from and written to TOML like `kcciol.config`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kcciol.config import FASTEST, MOST, DataConfig, EngineConfig, require, require_range
from kcciol.nets.residual import ResidualConfig


@dataclass(frozen=True)
class ViewConfig:
    """How an image is changed each time that it is seen."""

    kind: Literal["ink", "colour"] = "ink"
    """ink: characters, drawn anew from their ink. colour: small photographs, cut and coloured anew."""
    turns: int = 4
    """Classes made of one by turning it: 1, 2 (by 180 degrees) or 4 (by 90)."""
    mirrored: bool = False
    """The mirror image of a class is another class."""
    angle: float = 15.0
    """Turned by up to so many degrees either way."""
    zoom: float = 0.2
    """Made larger or smaller by up to this share, in height and in width apart."""
    shear: float = 0.2
    """Slanted by up to this share of the height."""
    shift: float = 0.1
    """Moved by up to this share of the side."""
    bend: float = 0.0
    """ink: bent, each of 4 x 4 points moved by about this share of the side."""
    stroke: float = 0.0
    """ink: strokes made wider or narrower by about so many of the field's 64 places."""
    flips: bool = False
    """Mirrored or not, at random; the class is the same."""
    crop: int = 0
    """Moved by up to so many whole pixels."""
    light: float = 0.4
    """colour: brightness, contrast and saturation changed by up to this share."""
    erase: float = 0.0
    """colour: the share of images in which a rectangle is blotted out."""
    whole: bool = False
    """ink: the canvas as it is, in place of the ink that is found on it."""
    evened: float = 1.0
    """ink: how far strokes are brought to one width before all else: 0 not at all, 1 fully."""

    def __post_init__(self) -> None:
        require(self.turns in (1, 2, 4), "view.turns", self.turns, "1, 2 or 4")
        require_range(self, "view", 0, 180, "angle")
        require_range(self, "view", 0, 1, "zoom", "shear", "shift", "bend", "light", "erase", "evened")
        require_range(self, "view", 0, 16, "stroke", "crop")

    @property
    def classes(self) -> int:
        """Classes made of one."""
        return self.turns * (2 if self.mirrored else 1)


@dataclass(frozen=True)
class LossConfig:
    """Which classes the features are told apart by: all at once, by their angle with a vector for each."""

    scale: float = 20.0
    """What cosines are multiplied by before the softmax; 0: a linear classifier in place of cosines."""
    margin: float = 0.2
    """What is taken off the cosine with the right class."""
    smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    turned: float = 0.0
    """Weight of a second task: by which of four turns an image was turned (view.turns must be 1)."""

    def __post_init__(self) -> None:
        require_range(self, "loss", 0, FASTEST, "scale", "turned")
        require_range(self, "loss", 0, 1, "margin", "smoothing")


@dataclass(frozen=True)
class RateConfig:
    """Steps, and how far each goes. The rate rises over the first twentieth, then falls to nothing as a cosine does."""

    steps: int = 20000
    batch: int = 256
    """Images in a step."""
    optimizer: Literal["adam", "sgd"] = "adam"
    rate: float = 2e-3
    """The highest."""
    decay: float = 0.05
    """Weight decay of everything but biases and norms: with Adam decoupled, with SGD part of the gradient."""
    average: float = 0.999
    """The encoder kept is a moving mean of the weights, of which each step keeps this share; 0: the last weights."""

    def __post_init__(self) -> None:
        require_range(self, "rate", 1, 10**8, "steps")
        require_range(self, "rate", 2, 2**16, "batch")
        require_range(self, "rate", 0, FASTEST, "rate", "decay")
        require(0 <= self.average < 1, "rate.average", self.average, "0 or more, and less than 1")


@dataclass(frozen=True)
class OutputConfig:
    """What is done to the network's output: whitened with the covariance within base classes."""

    shrinkage: float = 0.1
    """Share of that covariance that is replaced by its mean variance in all directions; 1: no whitening."""
    views: int = 1
    """Each base image is seen so many times, changed as in training, when the covariance is taken; 0: as it is."""

    def __post_init__(self) -> None:
        require_range(self, "output", 0, 1, "shrinkage")
        require_range(self, "output", 0, 1000, "views")


@dataclass(frozen=True)
class Recipe:
    """How an encoder is trained."""

    recipe: str = "characters"
    """What it is for: `characters` or `small-images`; a recipe's file says it, so that it is known as one."""
    seed: int = 0
    """A run is a function of its recipe and this number."""
    data: DataConfig = field(default_factory=lambda: DataConfig(size=105, base_classes=0, train_samples=0))
    extra: int = 0
    """Further base classes that kcciol draws itself (`glyphs`)."""
    net: ResidualConfig = field(default_factory=ResidualConfig)
    view: ViewConfig = field(default_factory=ViewConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    rate: RateConfig = field(default_factory=RateConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", self.seed, "0 or more (and below 2^63)")
        require_range(self, "", 0, MOST, "extra")
        ok = not self.loss.turned or self.view.turns == 1
        require(ok, "loss.turned", self.loss.turned, "0 unless view.turns is 1")
        grey = self.net.channels == 1
        require(grey == (self.view.kind == "ink"), "net.channels", self.net.channels, "1 for ink, 3 for colour")
