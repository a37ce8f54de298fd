"""An ONNX file as an encoder, run by onnxruntime; and any `NetworkEncoder` as such a file.

A file that `export` has written is complete: its graph gives the features themselves, its metadata say how pictures are
prepared, and its identity is that of the encoder that it was made of, whose features it may be mixed with (they are
equal to 1e-4). That holds as long as the graph is as it was written: where another program has changed it, made it
int8 for instance, the file is an encoder with an identity of its own, a hash of the graph. So is every file that is not
of ours; for it, the preprocessing must be given.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kcciol.encoders.network import NetworkEncoder, PictureEncoder, example, lay_out
from kcciol.encoders.output import PLAIN, Output, digest
from kcciol.encoders.preprocessing import Preprocessing, preprocessing_of
from kcciol.errors import UserError, lacks_memory, quoted
from kcciol.files import parse_json, path_of, read_bytes, replacing, require_file, shortened

KEY = "kcciol"  # of the metadata
KIND = "ONNX file"
LARGEST = 2**31  # bytes, as protobuf has it
SAMPLES = 3  # pictures at once that a file is tried with; an exported graph takes any number


class OnnxEncoder(PictureEncoder):
    """An encoder whose network onnxruntime computes, on the CPU."""

    def __init__(
        self,
        model: bytes,
        preprocessing: Preprocessing | None = None,
        output: Output = PLAIN,
        threads: int = 0,
        label: str = "the ONNX file",
    ) -> None:
        """model: what is in an ONNX file.
        preprocessing: makes its input of pictures; a file of ours says it itself.
        output: what is done to its output; nothing more is done to that of a file of ours.
        threads: that compute one batch; 0: one for each core.
        label: what to call the file in messages.
        """
        self.device, self._label = torch.device("cpu"), label
        graph = _parsed(model, label)
        said, hashed = _said_by(graph, label), _hash_of(graph)
        whole = said is not None and said["graph"] == hashed
        if preprocessing is None and said is not None:
            preprocessing = preprocessing_of(said["preprocessing"])
        if preprocessing is None:
            raise UserError(
                f"{label} does not say how pictures are prepared for it: give the preprocessing that its network was "
                "trained with, such as kcciol.encoders.photo.Photo(size=224)."
            )
        self.preprocessing, self.output = preprocessing, output
        same = whole and said is not None and preprocessing.settings == said["preprocessing"]
        self._ready_made = said is not None and output.identity == PLAIN.identity
        self._identity = (
            said["identity"]
            if said is not None and same and self._ready_made
            else digest({}, ["onnx", hashed, preprocessing.settings, output.identity])
        )
        self._session = _session(model, label, threads)
        shape = tuple(preprocessing([example()]).shape)
        self._input, self._one_by_one = _require_image(self._session, shape, label)
        self._measure()

    @property
    def identity(self) -> str:
        """That of the encoder that it was made of, when nothing has been changed; else a hash of graph, preprocessing
        and output."""
        return self._identity

    @property
    def _name(self) -> str:
        return f"The network of {self._label}"

    def _run(self, inputs: Tensor) -> object:
        parts = [row[None] for row in inputs] if self._one_by_one else [inputs]
        found = [self._session.run(None, {self._input: part.numpy()})[0] for part in parts]
        return torch.from_numpy(np.concatenate(found))

    def _finished(self, outputs: Tensor) -> Tensor:
        return outputs if self._ready_made else super()._finished(outputs)


def load(
    source: str | Path,
    /,
    device: torch.device | str = "cpu",
    preprocessing: Preprocessing | None = None,
    output: Output = PLAIN,
) -> OnnxEncoder:
    """A network in an ONNX file, run by onnxruntime on the CPU."""
    path = path_of(source)
    if str(device) not in ("auto", "cpu"):
        raise UserError(
            f"ONNX files are run on the CPU, and the device asked for is {quoted(str(device))}: ask for 'cpu'."
        )
    label = f"The ONNX file {path}"
    return OnnxEncoder(_with_weights(path, label), preprocessing, output, label=label)


def with_onnx(encoder: NetworkEncoder, threads: int = 0) -> OnnxEncoder:
    """The same encoder, its network run by onnxruntime: equal to 1e-4, and several times as quick on a CPU."""
    return OnnxEncoder(exported(encoder), threads=threads, label="The exported network")


def export(encoder: NetworkEncoder, path: str | Path) -> None:
    """Write an encoder as an ONNX file, which `load` takes as the same encoder."""
    path = path_of(path)
    require_file(path, ".onnx")
    model = exported(encoder)
    with replacing(path) as part:
        part.write_bytes(model)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch says of packages that it does without."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class _Whole(nn.Module):
    """From what the preprocessing makes to features."""

    def __init__(self, encoder: NetworkEncoder) -> None:
        super().__init__()
        network = copy.deepcopy(encoder.network).cpu()
        self.network, self.finish = lay_out(network, torch.contiguous_format), encoder.output.to("cpu")

    def forward(self, inputs: Tensor) -> Tensor:
        return self.finish(self.network(inputs))


def exported(encoder: NetworkEncoder) -> bytes:
    """What is in the file of an encoder."""
    if not isinstance(encoder, NetworkEncoder):
        raise UserError(f"Only a NetworkEncoder can be exported to ONNX, and this is a {type(encoder).__name__}.")
    onnx = _needed("onnx")
    _needed("onnxscript")
    inputs = encoder.preprocessing([example()] * SAMPLES)
    batch = torch.export.Dim("images")
    try:
        with _quietly(), torch.inference_mode(False), torch.no_grad():
            program = torch.onnx.export(
                _Whole(encoder).eval(), (inputs,), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
            )
        assert program is not None
        model = program.model_proto
    except Exception as error:
        if lacks_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"The network {type(encoder.network).__name__} cannot be exported to ONNX ({type(error).__name__}: "
            f"{reason}): use it with torch."
        ) from error
    for node in model.graph.node:
        node.ClearField("metadata_props")  # where in our source it comes from, with the paths of this machine
    said = {"identity": encoder.identity, "preprocessing": encoder.preprocessing.settings, "graph": _hash_of(model)}
    onnx.helper.set_model_props(model, {KEY: json.dumps(said)})
    found: bytes = model.SerializeToString()
    return found


def _needed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UserError(f"ONNX files need the package {package}: run `pip install 'kcciol[onnx]'`.") from None


def _with_weights(path: Path, label: str) -> bytes:
    """What is in a file, with the weights that may lie in another one beside it."""
    data = read_bytes(path, KIND, largest=LARGEST)
    model = _parsed(data, label)
    if not any(tensor.external_data for tensor in model.graph.initializer):
        return data
    try:
        _needed("onnx").external_data_helper.load_external_data_for_model(model, str(path.parent))
        found: bytes = model.SerializeToString()
    except Exception as error:  # of onnx, of protobuf, or of a file that is not there
        if lacks_memory(error):
            raise
        reason = shortened(str(error).partition("\n")[0])
        raise UserError(f"{label} lacks weights ({reason}): put the file that has them beside it.") from None
    return found


def _parsed(model: bytes, label: str) -> Any:
    """The model as a structure."""
    try:
        found = _needed("onnx").load_from_string(model)
        if len(found.graph.node):
            return found
        reason = "it holds no network"
    except UserError:
        raise
    except Exception as error:  # protobuf's own
        reason = shortened(str(error).partition("\n")[0])
    raise UserError(f"{label} is not an ONNX file, or a damaged one ({reason}): use another one.")


def _hash_of(model: Any) -> str:
    """What decides what a model computes."""
    found = hashlib.sha256(model.graph.SerializeToString(deterministic=True))
    for part in (*model.opset_import, *model.functions):
        found.update(part.SerializeToString(deterministic=True))
    return found.hexdigest()


def _said_by(model: Any, label: str) -> dict[str, Any] | None:
    """What a file of ours says of itself; none in those of others."""
    texts = [entry.value for entry in model.metadata_props if entry.key == KEY]
    if not texts:
        return None
    try:
        said = parse_json(texts[0])
    except ValueError as error:
        raise UserError(f"{label} is damaged ({shortened(error)}): export it again.") from None
    texts = [said.get(name) for name in ("identity", "graph")] if isinstance(said, dict) else [None]
    if not all(isinstance(text, str) and len(text) == 64 for text in texts):
        raise UserError(f"{label} is damaged: it does not say which encoder it is; export it again.")
    found: dict[str, Any] = said
    return found


def _session(model: bytes, label: str, threads: int) -> Any:
    runtime = _needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # what is wrong is an exception too
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds
        if lacks_memory(error):
            raise
        reason = shortened(str(error).partition("\n")[0])
        raise UserError(f"{label} cannot be run by onnxruntime ({reason}): export it again.") from None


def _require_image(session: Any, shape: tuple[int, ...], label: str) -> tuple[str, bool]:
    """The name of the one input, when it takes what the preprocessing makes; and whether it takes but one at a time."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    for what, found in (("input", inputs), ("output", outputs)):
        if len(found) != 1:
            names = ", ".join(shortened(one.name) for one in found)
            raise UserError(
                f"{label} has {len(found)} {what}s ({names}), but an encoder has one: export it with one {what}."
            )
    (taken,) = inputs
    if taken.type != "tensor(float)" or len(taken.shape) != 4:
        raise UserError(
            f"{label} takes a {taken.type} of {len(taken.shape)} axes, but an encoder takes a tensor(float) of four, "
            "(images, channels, height, width): export it so."
        )
    images, *sides = taken.shape
    if isinstance(images, int) and images != 1:
        raise UserError(f"{label} takes {images} images at a time and no other number: export it for any number.")
    if any(isinstance(side, int) and side != made for side, made in zip(sides, shape[1:], strict=True)):
        raise UserError(
            f"{label} takes images {tuple(sides)} (channels, height, width), but the preprocessing makes {shape[1:]}: "
            "give the one that its network was trained with."
        )
    return taken.name, images == 1
