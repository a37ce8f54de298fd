"""An encoder of ours as one file: the network, its preprocessing, what is done to its output, how it was trained.

The weights are kept in half precision, which loses nothing that shows, and used in float32.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.output import PLAIN, Output
from kcciol.encoders.preprocessing import Preprocessing, preprocessing_of
from kcciol.errors import UserError, quoted
from kcciol.files import path_of
from kcciol.files.tensors import Format, Header, Tensors, read_tensors, require_own, write_tensors
from kcciol.plugins import Registry
from kcciol.serialization import from_dict, to_dict

FORMAT = Format("encoder", ())
OUTPUT_FORMAT = Format("output of an encoder", ())
NET = "net."  # before the name of a tensor of the network
FIELDS = {"network", "preprocessing", "output", "training"}

NETWORKS: Registry[type[nn.Module]] = Registry(
    "kcciol.networks", "network", {"residual": "kcciol.nets.residual:Residual"}
)
"""Networks that a file can hold. Each is made of one dataclass of settings, `config`, which it keeps by that name."""


class SavedEncoder(NetworkEncoder):
    """An encoder from a file of ours; `training` is what the file says of how it was made."""

    def __init__(self, path: Path | str, device: torch.device | str = "cpu") -> None:
        path = path_of(path)
        header, tensors = read_tensors(path, FORMAT)
        try:
            parts = _parts_of(header, tensors)
        except UserError as error:
            raise UserError(f"The encoder {path} cannot be used: {error}") from None
        super().__init__(*parts, device)
        self.training: dict[str, Any] = header["training"]


def load(source: str, /, device: torch.device | str = "cpu") -> SavedEncoder:
    """An encoder of ours from one file: a network, its preprocessing and its output."""
    return SavedEncoder(source, device)


def save(
    path: Path,
    network: nn.Module,
    preprocessing: Preprocessing,
    output: Output = PLAIN,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write what `load` reads.

    network: one of `NETWORKS`.
    training: what is worth knowing of how it was trained, JSON-ready: config, seed, commit, data, results.
    """
    kind = next((name for name in NETWORKS if NETWORKS[name] is type(network)), None)
    if kind is None:
        raise UserError(
            f"The network {type(network).__name__} cannot be saved as an encoder: only {', '.join(NETWORKS)} can; "
            "export it to ONNX (kcciol.encoders.onnx.export)."
        )
    require_own(path, FORMAT)
    header = {
        "network": {"kind": kind, **to_dict(network.config)},
        "preprocessing": preprocessing.settings,
        "output": output.settings,
        "training": dict(training or {}),
    }
    weights = {NET + name: _halved(tensor) for name, tensor in network.state_dict().items()}
    write_tensors(path, FORMAT, header, {**weights, **_halves(output)})


def save_output(path: Path, output: Output, training: Mapping[str, Any]) -> None:
    """Write an output that belongs to weights which come from elsewhere."""
    require_own(path, OUTPUT_FORMAT)
    write_tensors(path, OUTPUT_FORMAT, {"output": output.settings, "training": dict(training)}, _halves(output))


def load_output(path: Path) -> Output:
    """What `save_output` has written."""
    header, tensors = read_tensors(path, OUTPUT_FORMAT)
    return Output.of(tensors, header.get("output"))


def _parts_of(header: Header, tensors: Tensors) -> tuple[nn.Module, Preprocessing, Output]:
    if missing := FIELDS - header.keys():
        raise UserError(f"it lacks {', '.join(sorted(missing))}.")
    said = header["network"]
    if not isinstance(said, dict) or not isinstance(said.get("kind"), str):
        raise UserError(f"its network is {quoted(said)}, which names none.")
    network_type = NETWORKS.find(said["kind"])
    hints: dict[str, Any] = typing.get_type_hints(network_type.__init__)
    config = from_dict(hints["config"], {k: v for k, v in said.items() if k != "kind"}, "its network")
    with torch.device("meta"):  # a file cannot ask for more memory than its own tensors have
        network = network_type(config)
    wanted = network.state_dict()
    found = {name.removeprefix(NET): t for name, t in tensors.items() if name.startswith(NET)}
    if found.keys() != wanted.keys():
        odd = min(found.keys() ^ wanted.keys())
        raise UserError(f"the tensor {quoted(odd)} is {'missing' if odd in wanted else 'none of its network'}.")
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape or not bool(tensor.isfinite().all()):
            raise UserError(f"the tensor {quoted(name)} is not {tuple(wanted[name].shape)} of finite numbers.")
    whole = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in found.items()}
    network.load_state_dict(whole, assign=True)
    return network, preprocessing_of(header["preprocessing"]), Output.of(tensors, header["output"])


def _halves(output: Output) -> dict[str, Tensor]:
    return {name: _halved(tensor) for name, tensor in output.tensors.items()}


def _halved(tensor: Tensor) -> Tensor:
    """In half precision; counts stay what they are."""
    if not tensor.is_floating_point():
        return tensor
    found = tensor.half()
    if not bool(found.isfinite().all()):
        raise UserError("A weight is too large for half precision, or no number, so the encoder is not saved.")
    return found
