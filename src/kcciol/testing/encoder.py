"""The promises of an encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.encoders import Encoder
from kcciol.testing.case import near


def check_encoder(encoder: Encoder, images: Tensor) -> None:
    """Features of images (n, c, h, w) uint8, n at least 2, are (n, width) float32, finite, the same each time, and each
    image's are its own, whatever others are there; the identity is a text that stays the same."""
    identity, found = encoder.identity, encoder.features(images)
    wanted = (*images.shape[:-3], encoder.width)
    alone = torch.stack([encoder.features(image) for image in images])
    for holds, sentence in (
        (found.shape == wanted, f"the features are {tuple(found.shape)}, but must be {wanted}."),
        (found.dtype == torch.float32, f"the features are {found.dtype}, but must be torch.float32."),
        (bool(found.isfinite().all()), "a feature is not a finite number."),
        (not found.requires_grad, "the features ask for gradients."),
        (torch.equal(found, encoder.features(images)), "the same images have other features the second time."),
        (near(found, alone), "an image has other features alone than among others."),
        (isinstance(identity, str) and bool(identity), f"the identity is {identity!r}, but must be a text."),
        (encoder.identity == identity, "the identity has changed."),
    ):
        if not holds:
            raise AssertionError(f"The encoder {type(encoder).__name__}: {sentence}")
