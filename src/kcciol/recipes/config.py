"""What a recipe is: frozen dataclasses, read from and written to TOML like `kcciol.config`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kcciol.config import FASTEST, MOST, DataConfig, EngineConfig, preset_values, require, require_range
from kcciol.errors import UserError
from kcciol.nets.residual import ResidualConfig
from kcciol.serialization import from_dict, read_toml


@dataclass(frozen=True)
class ViewConfig:
    """How an image is changed each time that it is seen."""

    kind: Literal["ink", "colour"] = "ink"
    """ink: characters, drawn anew from their ink. colour: small photographs, moved and coloured anew."""
    turns: int = 4
    """Classes made of one by turning it: 1, 2 (by 180 degrees) or 4 (by 90)."""
    mirrored: bool = False
    """The mirror image of a class is another class, and so is each of its turns."""
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
    coarse: float = 0.0
    """ink: the share of images seen as on a canvas of 28 pixels, so that small pictures are known too."""
    bold: float = 0.0
    """ink: the share of images whose strokes are about twice as wide, as of another pen."""
    flips: bool = False
    """Mirrored or not, at random; the class is the same."""
    crop: int = 0
    """Moved by up to so many whole pixels, which blurs nothing where the image is not turned or zoomed."""
    light: float = 0.4
    """colour: brightness, contrast and saturation changed by up to this share."""
    erase: float = 0.0
    """colour: the share of images in which a rectangle is blotted out."""
    whole: bool = False
    """ink: not cut out, but the whole canvas as it is, dark on light. So does the encoder."""
    evened: float = 1.0
    """ink: how far strokes are brought to one width before all else, 0 not at all, 1 fully. So does the encoder."""

    def __post_init__(self) -> None:
        require(self.turns in (1, 2, 4), "view.turns", self.turns, "1, 2 or 4")
        require_range(self, "view", 0, 180, "angle")
        require_range(
            self, "view", 0, 1, "zoom", "shear", "shift", "bend", "coarse", "bold", "light", "erase", "evened"
        )
        require_range(self, "view", 0, 16, "stroke")
        require_range(self, "view", 0, 1024, "crop")
        require(not (self.flips and self.mirrored), "view.flips", self.flips, "false with view.mirrored")
        for name in ("erase",) if self.kind == "ink" else ("bend", "stroke", "coarse", "bold", "whole"):
            value = getattr(self, name)
            require(not value, f"view.{name}", value, f"{type(value)()!r} with view.kind = {self.kind!r}")

    @property
    def classes(self) -> int:
        """Classes made of one."""
        return self.turns * (2 if self.mirrored else 1)


@dataclass(frozen=True)
class LossConfig:
    """A classifier over all classes: the softmax of the cosines of an image's features with a vector for each class."""

    scale: float = 20.0
    """What the cosines are multiplied by; 0: a linear classifier, without cosines."""
    margin: float = 0.2
    """What is taken off the cosine with the right class, so that it must be the largest by so much."""
    smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    turned: float = 0.0
    """Weight of a second task: by which of four turns an image was turned (view.turns must be 1)."""

    def __post_init__(self) -> None:
        require_range(self, "loss", 0, FASTEST, "scale", "turned")
        require_range(self, "loss", 0, 1, "margin", "smoothing")
        require(not self.margin or self.scale > 0, "loss.margin", self.margin, "0 with loss.scale = 0")


@dataclass(frozen=True)
class RateConfig:
    """Steps, and how far each goes. The rate rises over the first twentieth, and falls to nothing as a cosine."""

    steps: int = 20000
    batch: int = 256
    """Images in a step."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam: as torch's AdamW; sgd: as torch's SGD with Nesterov's momentum of 0.9."""
    rate: float = 2e-3
    """The highest, at the end of the first twentieth of the steps."""
    decay: float = 0.05
    """Weight decay of everything but biases and norms: with Adam decoupled, with SGD part of the gradient."""
    average: float = 0.999
    """The encoder kept is a moving mean of the weights, of which each step keeps this share; 0: the last weights."""

    def __post_init__(self) -> None:
        require_range(self, "rate", 1, 10**8, "steps")
        require_range(self, "rate", 2, 2**16, "batch")
        require_range(self, "rate", 0, FASTEST, "rate", "decay")
        require(self.rate * self.decay <= 1, "rate.decay", self.decay, "at most 1 / rate.rate")
        require(0 <= self.average < 1, "rate.average", self.average, "0 or more, and less than 1")


@dataclass(frozen=True)
class OutputConfig:
    """What is done to the network's output: whitened with the covariance within base classes."""

    shrinkage: float = 0.1
    """Share of that covariance that is replaced by one that is the same in all directions; 1: no whitening."""
    views: int = 1
    """For the covariance each base image is seen so many times, changed as in training; 0: once, as it is."""

    def __post_init__(self) -> None:
        require_range(self, "output", 1e-4, 1, "shrinkage")  # with none, few images would end hours in an error
        require_range(self, "output", 0, 1000, "views")


@dataclass(frozen=True)
class Recipe:
    """How an encoder is trained: the plain way, as one classifier over all base classes."""

    recipe: str = "characters"
    """What it is called; a file of settings that has this key is a recipe."""
    seed: int = 0
    """A run is a function of its recipe and this number."""
    data: DataConfig = field(default_factory=lambda: DataConfig(size=105, base_classes=0, train_samples=0))
    extra: int = 0
    """ink: so many further base classes, characters that kcciol draws itself (the data set `glyphs`)."""
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
        ink, net, kind = self.view.kind == "ink", self.net, f"with view.kind = {self.view.kind!r}"
        require(net.channels == (1 if ink else 3), "net.channels", net.channels, f"{1 if ink else 3} {kind}")
        require(ink or net.size == self.data.size, "net.size", net.size, f"data.size, {self.data.size}, {kind}")
        require(ink or not self.extra, "extra", self.extra, f"0 {kind}")


def recipe(name: str) -> Recipe:
    """A recipe by its name.

    >>> recipe("characters").data.name
    'omniglot'
    """
    values = preset_values(name)
    if "recipe" not in values:
        raise UserError(f"The preset {name} is no recipe of an encoder: kcciol.preset({name!r}) reads it.")
    return from_dict(Recipe, values)


def recipe_in(folder: Path) -> Recipe | None:
    """The recipe that a run folder was made by; none where its config is of another kind, missing or damaged."""
    path = folder / "config.toml"
    try:
        values = read_toml(path) if path.is_file() else {}
    except UserError:  # whoever needs it says what is wrong with it, and what is to be done
        return None
    return from_dict(Recipe, values) if "recipe" in values else None
