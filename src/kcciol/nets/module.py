"""Any `torch.nn.Module` as h_theta: images (n, c, h, w) from 0 to 1 -> features (n, d).

It is named in the config (`net.module`) or given as an object in Python. Its parameters are an argument, as everywhere;
nobody has written its derivatives out, so `kcciol.meta.autograd` takes them. Its buffers, such as the running means of
batch normalisation, are no parameters: they are kept here, training mode moves them in place, and they are saved.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint

import torch
from torch import Tensor, nn
from torch.func import functional_call

from kcciol.config import GIVEN
from kcciol.errors import UserError, lacks_memory, quoted, require_kind
from kcciol.nets.pixels import to_unit
from kcciol.random import seeded, torch_seeded

ImageShape = tuple[int, int, int]  # channels, height, width


class ModuleEncoder:
    """A network of one's own, for images of one shape. Threads may ask it at once."""

    def __init__(self, name: str, image_shape: ImageShape, given: nn.Module | None = None) -> None:
        """name: net.module of the config. given: the module itself, of which a copy is taken, with its weights."""
        if given is None and name == GIVEN:
            raise UserError(
                "The network is a module that was given as an object in Python: give it again, as module=..., to "
                "kcciol.load or kcciol.train."
            )
        self.name, self.image_shape = name if name != GIVEN else "", image_shape
        self._said = f"net.module {quoted(name)}" if self.name else "the module given"
        self._lock = threading.Lock()  # the module holds other tensors for as long as it is called
        self._make = _maker(name, image_shape) if given is None else _copier(given)
        self._draw(0)
        self.shapes = _shapes(self.module)
        if given is not None and self.name:
            with torch_seeded(0):
                made, _ = _tried(_maker(name, image_shape), self._said, image_shape)
            if _shapes(made) != self.shapes:
                raise UserError(f"{self._said} makes other parameters than the module given has: leave it empty.")

    def _draw(self, seed: int) -> None:
        with torch_seeded(seed):
            self.module, self.features = _tried(self._make, self._said, self.image_shape)
        self.device = torch.device("cpu")
        kept = self.module.state_dict().keys()  # the other buffers are constants, which the module makes itself
        self.buffers = {name: b.detach().clone() for name, b in self.module.named_buffers() if name in kept}

    @property
    def about(self) -> list[object]:
        """What decides the features beside theta and the buffers."""
        return ["bytes to 0..1, module", self.name or type(self.module).__qualname__, self.image_shape]

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """First weights: of a module given those it has, else drawn as the module draws them, by this generator."""
        self._draw(int(torch.randint(2**62, (), generator=generator)))
        if _shapes(self.module) != self.shapes:
            raise UserError(f"{self._said} makes a network of other shapes each time: it must be the same one.")
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}

    @staticmethod
    def rows(images: Tensor) -> Tensor:
        """Images (n, c, h, w) uint8 -> (n, c h w)."""
        return images.flatten(1)

    def apply(
        self, theta: Mapping[str, Tensor], rows: Tensor, precision: torch.dtype, training: bool = False
    ) -> Tensor:
        """Features (n, d); autograd can go through it. training: in training mode, which moves the buffers."""
        dtype = next(iter(theta.values())).dtype
        x = to_unit(rows.view(-1, *self.image_shape), dtype)
        with self._lock, torch.autocast(x.device.type, precision, enabled=precision != dtype):
            if self.device != x.device:
                self.module, self.device = self.module.to(x.device), x.device
                self.buffers = {name: b.to(x.device) for name, b in self.buffers.items()}
            z: Tensor = functional_call(self.module.train(training), {**theta, **self.buffers}, (x,))
        return z

    def require_second_derivatives(self) -> None:
        """Refuse at once, not when phase 3 begins, what cannot be differentiated twice."""
        leaves = {name: p.detach().clone().requires_grad_() for name, p in self.module.named_parameters()}
        rows, moved = self.rows(_trial(self.image_shape)), self.buffers
        self.buffers = {name: b.clone() for name, b in moved.items()}
        with torch_seeded(0), _blamed(f"{self._said} cannot be differentiated twice, as phase 3 needs"):
            value = self.apply(leaves, rows, torch.float32, training=True).square().sum()
            parts = torch.autograd.grad(value, list(leaves.values()), create_graph=True, materialize_grads=True)
            # not by autograd.grad, which leaves out in silence whatever cannot be differentiated again
            torch.autograd.backward(torch.stack([g.square().sum() for g in parts]).sum())
        self.buffers = moved


def _copier(given: nn.Module) -> Callable[[], nn.Module]:
    """What makes copies of a module."""
    require_kind(given, nn.Module, "module", "your network")
    return lambda: copy.deepcopy(given).cpu()


def _maker(name: str, image_shape: ImageShape) -> Callable[[], nn.Module]:
    """What makes the module of this name."""
    try:
        factory = EntryPoint("net", name, "module").load()
        good = _makes_modules(factory)
    except (Exception, SystemExit) as error:  # whatever a module does as it is imported
        raise UserError(
            f"net.module {quoted(name)} cannot be imported ({_words(error)}): install its package, or put its folder "
            "into PYTHONPATH."
        ) from error
    if not good:
        raise UserError(
            f"net.module {quoted(name)} must be a class of torch.nn.Module, or a function that is annotated to return "
            "one: name another one, or add -> torch.nn.Module."
        )

    def make() -> nn.Module:
        with _blamed(f"net.module {quoted(name)} cannot make a network for images of shape {image_shape}"):
            module = factory(image_shape)
        require_kind(module, nn.Module, f"what net.module {quoted(name)} returns", "torch.nn.Sequential")
        return typing.cast(nn.Module, module)

    return make


def _makes_modules(factory: object) -> bool:
    """A file may come from anyone, and the name that it has from there: so nothing else is ever called."""
    made = factory
    if isinstance(factory, types.FunctionType):
        made = typing.get_type_hints(factory).get("return")
    return isinstance(made, type) and issubclass(made, nn.Module)


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in module.named_parameters()}


def _trial(image_shape: ImageShape) -> Tensor:
    """Two images of nothing."""
    return torch.randint(256, (2, *image_shape), dtype=torch.uint8, generator=seeded(0))


def _tried(make: Callable[[], nn.Module], said: str, image_shape: ImageShape) -> tuple[nn.Module, int]:
    """A new module, and the width of its features; one that nothing can be learned from is refused."""
    module = make()
    parameters = dict(module.named_parameters())
    if not parameters:
        raise UserError(f"{said} has no parameters, so there is nothing to train: give it some.")
    for name, p in parameters.items():
        if p.dtype != torch.float32:
            raise UserError(f"{said} has {name} of {p.dtype}, but must be of torch.float32: convert it by .float().")
    with _blamed(f"{said} cannot read images of shape {image_shape}"), torch.no_grad():
        z = module.eval()(to_unit(_trial(image_shape), torch.float32))  # which also makes what is lazy
    if not isinstance(z, Tensor):
        raise UserError(f"{said} returns a {type(z).__name__}, but must return a tensor of features.")
    if z.ndim != 2 or len(z) != 2 or not z.shape[1]:
        raise UserError(
            f"{said} makes features of shape {tuple(z.shape)} of two images, but must make a vector of each, (2, "
            "width): end it with pooling and flattening."
        )
    if not z.is_floating_point():
        raise UserError(f"{said} makes features of {z.dtype}, but they must be of torch.float32.")
    if not z.isfinite().all():
        raise UserError(f"{said} makes features that are not finite: give it other first weights.")
    return module, z.shape[1]


@contextlib.contextmanager
def _blamed(sentence: str) -> Iterator[None]:
    """Whatever is wrong inside is the module's; a lack of memory is nobody's."""
    try:
        yield
    except Exception as error:
        if lacks_memory(error):
            raise
        raise UserError(f"{sentence} ({_words(error)}): mend it, or name another one.") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
