"""What users hand to a learner: examples and labels of many kinds, checked and made into numbers, or refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kcciol.encoders import Encoder
from kcciol.errors import UserError, quoted

LARGEST = 1e6  # a larger value would outweigh all others for good
LONGEST = 1000  # characters of a label
NO_VALUE = f"not a finite number of at most {LARGEST:,.0f} in size, so it is refused; scale the features if need be."


def example_of(x: ArrayLike | Tensor, width: int) -> Tensor:
    """(1, width), of an example (width,) or (1, width)."""
    found = _numbers(x, width)
    if found.shape not in ((width,), (1, width)):
        raise UserError(f"An example must be {width} numbers, not {tuple(found.shape)}.")
    found = found.reshape(1, -1)
    if not found.abs().max() <= LARGEST:
        raise UserError(f"An example has a value that is {NO_VALUE}")
    return found


def examples_of(xs: ArrayLike | Tensor | Sequence[Any], width: int) -> Tensor:
    """(n, width), all of them good."""
    xs = list(xs) if isinstance(xs, Iterator) else xs
    if isinstance(xs, (list, tuple)):
        if not xs:
            return torch.empty(0, width)
        if any(isinstance(x, Tensor) for x in xs):
            rows = [_numbers(x, width) for x in xs]
            if len({row.shape for row in rows}) > 1:
                raise UserError(f"Several examples must be rows of {width} numbers each.")
            xs = torch.stack(rows)
    found = _numbers(xs, width)
    if found.ndim != 2 or found.shape[1] != width:
        raise UserError(f"Several examples must be rows of {width} numbers, not {tuple(found.shape)}.")
    if not bool((good := (found.abs() <= LARGEST).all(1)).all()):
        raise UserError(f"The example of index {int((~good).nonzero()[0])} has a value that is {NO_VALUE}")
    return found


def _numbers(xs: ArrayLike | Tensor, width: int) -> Tensor:
    try:
        if isinstance(xs, Tensor):
            if xs.is_complex():
                raise TypeError("complex numbers have no order")
            if xs.is_nested:
                raise TypeError("nested tensors have no shape")
            with torch.inference_mode(False):
                return (xs.clone() if xs.is_inference() else xs).detach().to_dense().to("cpu", torch.float32)
        if any(map(np.ma.is_masked, xs if isinstance(xs, (list, tuple)) else [xs])):
            raise TypeError("some of these are masked")
        found = np.asarray(xs)
        if found.dtype.kind not in "biufO" or (found.dtype.kind == "O" and not all(map(_is_number, found.flat))):
            raise TypeError("text, dates and complex numbers are refused")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            found = np.ascontiguousarray(found, dtype=np.float32)
        return torch.from_numpy(found if found.flags.writeable else found.copy())
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise UserError(f"An example must be {width} numbers ({error}).") from None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_))


def label_of(label: Hashable) -> Hashable:
    """The label, if it is one that comes back from a file as it is."""
    if isinstance(label, (Tensor, np.generic, np.ndarray)) and not isinstance(label, (np.datetime64, np.timedelta64)):
        if label.ndim:
            raise UserError(f"The label {quoted(label)} is an array, not one number: take the number out of it.")
        label = _plain_of(label)  # a tensor is equal to no other, however alike
    require_plain(label)
    return label


def labels_of(labels: Iterable[Hashable], count: int) -> list[Hashable]:
    """Each of them checked, if there are so many."""
    if isinstance(labels, np.ndarray) and (np.ma.is_masked(labels) or labels.dtype.kind in "mMV"):
        raise UserError("Labels must be text or numbers: dates, records and masked arrays are refused.")
    if isinstance(labels, (Tensor, np.ndarray)):
        labels = _plain_of(labels)
    if isinstance(labels, (str, bytes, bytearray, memoryview, Set, Mapping)) or not isinstance(labels, Iterable):
        raise UserError(f"labels is {quoted(labels)}, but must be a list of labels, one for each example.")
    found = [label_of(label) for label in itertools.islice(labels, count + 1)]  # there may be no end of them
    if len(found) != count:
        said = len(labels) if isinstance(labels, Sized) else len(found) if len(found) < count else f"more than {count}"
        raise UserError(f"There are {count} examples, but {said} labels.")
    return found


def _plain_of(label: Tensor | np.generic | NDArray[Any]) -> Any:
    """What lies in a tensor or an array."""
    try:
        return label.tolist()
    except (RuntimeError, TypeError, NotImplementedError) as error:  # on no device, say
        raise UserError(f"This cannot be a label or labels ({str(error).partition(chr(10))[0]}).") from None


def require_plain(label: Hashable) -> None:
    """Refuse what no file has as a label."""
    if label is not None and type(label) not in (str, int, float, bool):
        raise UserError(
            f"{quoted(label)} cannot be a label: a file could not keep its type, {type(label).__name__}; use text "
            "(str), a number, True, False or None."
        )
    if label != label:
        raise UserError("NaN is not equal to itself, so it cannot be a label.")
    if isinstance(label, float) and math.isinf(label):
        raise UserError(f"A number must be finite to be a label, and {label} is not.")
    if isinstance(label, str) and len(label) > LONGEST:
        raise UserError(f"A label may have {LONGEST:,} characters at most, but {quoted(label, 40)} has {len(label):,}.")
    if isinstance(label, int) and abs(label) >= 2**63:
        raise UserError(f"A whole number must be smaller than 2^63 in size to be a label, not {quoted(label, 40)}.")


def width_of(width: object, encoder: Encoder | str | None) -> int:
    """How many features an example has."""
    require_no_file(encoder)
    if width is None:
        if encoder is None or isinstance(encoder, str):
            raise UserError("width is missing: say how many features an example has, or give the encoder of them.")
        width = _made_by(encoder)
    if isinstance(width, np.integer):
        width = int(width)
    if type(width) is not int or not 1 <= width < 2**24:
        raise UserError(f"width is {quoted(width)}, but must be a whole number of at least 1 (and below 2^24).")
    return width


def identity_of(encoder: Encoder | str | None, width: int) -> str | None:
    """What an encoder is called, if its features fit."""
    identity = encoder if isinstance(encoder, str) or encoder is None else getattr(encoder, "identity", encoder)
    if not isinstance(identity, str) and identity is not None:
        raise UserError(f"encoder is {quoted(encoder)}, but must be an encoder or the text that identifies one.")
    if identity is not None and not 1 <= len(identity) <= LONGEST:
        raise UserError(f"The identity of an encoder must have 1 to {LONGEST} characters, not {len(identity)}.")
    if not isinstance(encoder, str) and encoder is not None and (makes := _made_by(encoder)) != width:
        raise UserError(f"The encoder makes {quoted(makes)} features, but this learner takes {width}.")
    return identity


def require_no_file(encoder: object) -> None:
    """A text is taken for what identifies an encoder."""
    if isinstance(encoder, str) and encoder.endswith(".safetensors"):
        raise UserError(
            f"encoder is {quoted(encoder)}, the name of a file: open it with kcciol.open_encoder, and give that."
        )


def _made_by(encoder: Encoder) -> int:
    """How many features an encoder makes."""
    width: int | None = getattr(encoder, "width", None)
    if width is None:
        raise UserError(f"The encoder {quoted(encoder)} does not say how many features it makes: it has no width.")
    return width
