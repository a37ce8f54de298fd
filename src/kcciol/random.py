"""The one source of random numbers: each is a function of whole numbers, the same on every machine and device.

Nothing here has a state to save: a run or a learner that is restored draws what it would have drawn, and copies that
run side by side draw what each would draw alone. There are three forms, for three places:

- `uniform`, `sample`, `integers`: a few numbers at a time on the host, for learners (numpy, splitmix64);
- `keyed`, `keyed_uniform`, `keyed_normal`: on any device, also within a CUDA graph (torch, splitmix64 again);
- `generator`, `philox`, `seeded`: long draws on the host, by the generators of numpy and torch.

`torch_seeded` makes the code of others, such as a network of one's own, a function of whole numbers too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# odd numbers without a pattern, so that (key, time, purpose, place) that differ fall on inputs that differ
_PLACE, _KEY, _TIME, _PURPOSE = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7, 0xABC98388FB8FAC03
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # those of splitmix64's finaliser


# --- on the host, for learners ----------------------------------------------------------------------------------------


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64 bits in which every bit of x moves every bit of the result (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND)
    return x ^ (x >> np.uint64(31))


def uniform(keys: NDArray[np.int64], time: int, purpose: int, count: int) -> NDArray[np.float64]:
    """(B, count) numbers in [0, 1): for each key those of this time and purpose.

    >>> a = uniform(np.array([1, 2]), time=5, purpose=0, count=3)
    >>> b = uniform(np.array([2]), time=5, purpose=0, count=2)
    >>> bool((a[1:, :2] == b).all()), bool((a[0] == a[1]).any())
    (True, False)
    """
    start = np.uint64((time * _TIME + purpose * _PURPOSE + 1) % 2**64)
    key = _mix(keys.astype(np.uint64)[:, None] * np.uint64(_KEY) + start)
    x = _mix(key + np.arange(count, dtype=np.uint64) * np.uint64(_PLACE))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(keys: NDArray[np.int64], time: int, purpose: int, count: int, size: int) -> NDArray[np.int64]:
    """(B, min(count, size)) different numbers below `size` for each key, all sets equally likely."""
    order = uniform(keys, time, purpose, size).argsort(1)
    return order[:, :count].astype(np.int64)


def integers(keys: NDArray[np.int64], time: int, purpose: int, count: int, size: int) -> NDArray[np.int64]:
    """(B, count) numbers below `size`, drawn independently."""
    return (uniform(keys, time, purpose, count) * size).astype(np.int64)


# --- on any device ----------------------------------------------------------------------------------------------------


def _signed(number: int) -> int:
    """The 64 bits of a number as torch has them: it knows no unsigned arithmetic."""
    return number - 2**64 if number >= 2**63 else number


def _shift(x: Tensor, by: int) -> Tensor:
    """To the right, filled with zeros: torch's own shift copies the sign."""
    return torch.bitwise_right_shift(x, by).bitwise_and(2 ** (64 - by) - 1)


def _mix_tensor(x: Tensor) -> Tensor:
    """`_mix` of the same 64 bits as signed integers."""
    x = (x ^ _shift(x, 30)) * _signed(_FIRST)
    x = (x ^ _shift(x, 27)) * _signed(_SECOND)
    return x ^ _shift(x, 31)


def keyed(*numbers: Tensor | int) -> Tensor:
    """One key for each place of the numbers, which are broadcast against each other; one of them at least is a tensor.

    >>> bool(keyed(torch.tensor(1), 2) == keyed(torch.tensor(2), 1))
    False
    """
    device = next(number.device for number in numbers if isinstance(number, Tensor))
    key = torch.zeros((), dtype=torch.int64, device=device)  # there from the start: a graph cannot copy from the host
    for number in numbers:
        key = _mix_tensor(key * _signed(_KEY) + number + 1)
    return key


def keyed_uniform(keys: Tensor, count: int) -> Tensor:
    """(..., count) float32 numbers in [0, 1) for keys (...).

    >>> a = keyed_uniform(keyed(torch.arange(2), 7), 5)
    >>> b = keyed_uniform(keyed(torch.tensor(1), 7), 3)
    >>> bool((a[1, :3] == b).all())
    True
    """
    x = _mix_tensor(keys[..., None] + torch.arange(count, device=keys.device) * _signed(_PLACE))
    return _shift(x, 40).to(torch.float32) * 2.0**-24


def keyed_normal(keys: Tensor, count: int) -> Tensor:
    """(..., count) normal numbers for keys (...)."""
    found: Tensor = torch.special.ndtri(keyed_uniform(keys, count).clamp(1e-7, 1 - 1e-7))
    return found


# --- long draws on the host -------------------------------------------------------------------------------------------


def generator(*key: int) -> np.random.Generator:
    """A source of random numbers that depends on these numbers of 0 or more and on nothing else.

    >>> int(generator(3, 1).integers(1000)) == int(generator(3, 1).integers(1000))
    True
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def philox(key: Sequence[int], counter: Sequence[int] | None = None) -> np.random.Philox:
    """Raw bits of Philox for two numbers as the key and four as the counter: numpy promises that they never change, but
    not so of the distributions that it makes of them."""
    at = None if counter is None else np.array(counter, np.uint64)
    return np.random.Philox(key=np.array(key, np.uint64), counter=at)


@contextlib.contextmanager
def torch_seeded(*key: int) -> Iterator[None]:
    """While the block runs, what others draw from torch's common source depends on these numbers alone; then that
    source goes on as if nothing had been.

    >>> with torch_seeded(3, 1):
    ...     one = torch.rand(2)
    >>> with torch_seeded(3, 1):
    ...     print(bool((torch.rand(2) == one).all()))
    True
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call, unused-ignore]
    with torch.random.fork_rng(devices):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        yield


def seeded(seed: int) -> torch.Generator:
    """torch's own source, on the host: for the first weights of a network."""
    return torch.Generator().manual_seed(seed)
