"""Encoders: what turns images into features. `ENCODERS` is the list of them, `open_encoder` makes one.

Importing this imports no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from kcciol.encoders.card import EncoderCard
from kcciol.errors import UserError, quoted
from kcciol.plugins import Registry, written_out

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Runtime = Literal["torch", "onnx"]


class Encoder(Protocol):
    """What a learner on features needs to know of where they come from."""

    @property
    def width(self) -> int:
        """How many features an image has."""

    @property
    def identity(self) -> str:
        """A hash of all that decides the features: the weights, what is done to an image before, to the output after.
        Features of encoders with one identity may be mixed, others may not."""

    def features(self, images: Tensor, /) -> Tensor:
        """One image (c, h, w), bytes from 0 to 255, -> (width,); several (..., c, h, w) -> (..., width). float32; each
        image's do not depend on others.

        That is what every encoder takes. Some take images of one size only, as those of a run; a `PictureEncoder`
        takes all that `kcciol.encoders.pictures` makes pictures of: files, bytes, images of Pillow's, lists of them.
        """


class EncoderKind(Protocol):
    """Makes an encoder: a function, or a class, which may have a `card`. The first line of its docstring says what."""

    def __call__(self, source: str, /, device: torch.device | str = "cpu") -> Encoder:
        """source says which: a file, a folder, a name, as the kind takes it; empty where the name says it all."""


def _require_kind(found: object) -> None:
    if not callable(found):
        raise TypeError("it is no function that makes an encoder")


ENCODERS: Registry[EncoderKind] = Registry(
    "kcciol.encoders",
    "encoder",
    {
        "characters": "kcciol.encoders.characters:Characters",
        "characters-small": "kcciol.encoders.characters:CharactersSmall",
        "photos": "kcciol.encoders.photos:Photos",
        "run": "kcciol.encoders.run:load",
        "file": "kcciol.encoders.saved:load",
        "onnx": "kcciol.encoders.onnx:load",
    },
    _require_kind,
)
KINDS_OF_FILES = {"encoder": "file"}  # by what a file of tensors says that it is; the others are representations


def card_of(name: str) -> EncoderCard | None:
    """What is said of an encoder that is complete by its name; none where it is a kind, which needs a source. Nothing
    is imported for it."""
    return written_out(ENCODERS.definition(name), EncoderCard)


def open_encoder(source: str | Path, device: torch.device | str = "cpu", runtime: Runtime = "torch") -> Encoder:
    """An encoder that is ready to use.

    source: a name that `kcciol encoders` lists; a run folder, or a file of a run, of an encoder or of ONNX; or
    "KIND:SOURCE" for what other packages bring.
    device: where it computes.
    runtime: "onnx" runs its network by onnxruntime on the CPU, which is several times as quick there.
    """
    if runtime not in get_args(Runtime):
        raise UserError(f"runtime is {quoted(runtime)}, but must be one of: {', '.join(get_args(Runtime))}.")
    name, place = _found(source)
    encoder = ENCODERS.find(name)(place, device=device)
    if runtime == "torch" or name == "onnx":
        return encoder
    from kcciol.encoders.network import NetworkEncoder
    from kcciol.encoders.onnx import with_onnx

    if not isinstance(encoder, NetworkEncoder):
        raise UserError(f"The encoder {quoted(str(source))} cannot be run by onnxruntime: leave runtime='onnx' out.")
    return with_onnx(encoder)


def _found(source: str | Path) -> tuple[str, str]:
    """A name in `ENCODERS`, and what its kind takes."""
    from kcciol.files import path_of

    name, _, rest = source.partition(":") if isinstance(source, str) else ("", "", "")
    if name in ENCODERS:
        if not rest and card_of(name) is None and not ENCODERS.package(name):
            raise UserError(f"{name!r} is a kind of encoder, and needs to know which: name the file alone.")
        return name, rest
    path = path_of(source)
    if path.is_dir():
        if (whole := path / "encoder.safetensors").is_file():  # of a recipe
            return "file", str(whole)
        phases = [file for number in (3, 2, 1) if (file := path / f"phase{number}.safetensors").is_file()]
        if not phases:
            raise UserError(
                f"The folder {path} holds no representation of any phase, and no encoder: train it to the end first."
            )
        return "run", str(phases[0])
    if not path.exists():
        raise UserError(
            f"There is no encoder and no file {quoted(str(source))}; the encoders are: {', '.join(ENCODERS)}."
        )
    if path.suffix == ".onnx":
        return "onnx", str(path)
    from kcciol.files.tensors import kind_of

    return KINDS_OF_FILES.get(kind_of(path, "encoder") or "", "run"), str(path)
