"""The output of an encoder: whitened as its definition says, of unit length, the same after a file has kept it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.encoders.output import PLAIN, RAW, Output
from kcciol.encoders.saved import load_output, save_output
from kcciol.errors import UserError

Z = torch.randn(6, 30, 8, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 9) + 3


def test_whitened_base_classes_scatter_alike_in_all_directions() -> None:
    output = Output.fit(Z, 0.0)
    assert output.mean is not None
    assert output.matrix is not None
    white = (Z - output.mean) @ output.matrix
    rows = (white - white.mean(1, keepdim=True)).flatten(0, 1).double()
    assert torch.allclose(rows.mT @ rows / (6 * 29), torch.eye(8, dtype=torch.float64), atol=1e-4)
    assert torch.allclose(output(Z.flatten(0, 1)).norm(dim=1), torch.ones(180))


def test_it_is_the_definition() -> None:
    rows = (Z - Z.mean(1, keepdim=True)).flatten(0, 1).double().numpy()
    covariance = rows.T @ rows / (6 * 29)
    shrunk = 0.7 * covariance + 0.3 * np.trace(covariance) / 8 * np.eye(8)
    values, vectors = np.linalg.eigh(shrunk)
    wanted = (Z[0, 0].double().numpy() - Z.double().mean((0, 1)).numpy()) @ (vectors / np.sqrt(values)) @ vectors.T
    found = Output.fit(Z, 0.3)(Z[:1, 0])[0]
    assert np.allclose(found, wanted / np.linalg.norm(wanted), atol=1e-5)


def test_only_real_samples_count() -> None:
    padded = torch.cat([Z, torch.full((6, 4, 8), 1e3)], 1)
    counts = torch.full((6,), 30)
    found, wanted = Output.fit(padded, 0.2, counts), Output.fit(Z, 0.2)
    assert torch.allclose(found(Z[0]), wanted(Z[0]), atol=1e-5)
    counts[0] = 1  # a class of one image says nothing of how images differ
    assert Output.fit(padded, 0.2, counts)(Z[0]).isfinite().all()


def test_powers_plain_and_raw() -> None:
    z = torch.tensor([[4.0, -9.0, 0.0]])
    assert torch.equal(RAW(z), z)
    assert torch.allclose(PLAIN(z).norm(dim=1), torch.ones(1))
    assert torch.allclose(Output(power=0.5)(z), PLAIN(torch.tensor([[2.0, -3.0, 0.0]])))
    assert torch.equal(PLAIN(torch.zeros(1, 3)), torch.zeros(1, 3))


def test_narrowed_keeps_where_features_spread() -> None:
    output = Output.fit(Z, 0.5)
    narrow = output.narrowed(Z.flatten(0, 1), 5)
    assert narrow.width(8) == 5
    same = output.narrowed(Z.flatten(0, 1), 8)
    rows = Z.flatten(0, 1)
    assert torch.allclose(same(rows) @ same(rows).mT, output(rows) @ output(rows).mT, atol=1e-5)
    for width in (0, 9):
        with pytest.raises(UserError, match="cannot be narrowed"):
            output.narrowed(rows, width)


def test_a_file_keeps_it(tmp_path: Path) -> None:
    output = Output.fit(Z, 0.3, power=0.5).halved()
    save_output(tmp_path / "o.safetensors", output, {"seed": 0})
    again = load_output(tmp_path / "o.safetensors")
    assert again.identity == output.identity
    assert torch.equal(again(Z[0]), output(Z[0]))
    others = [PLAIN, RAW, Output(power=0.5), Output.fit(Z, 0.3), Output(output.mean), output.to("cpu")]
    assert len({o.identity for o in others}) == 6
    assert output.to("cpu").identity == output.identity


WRONG: list[tuple[Any, str]] = [
    (lambda: Output(power=0.0), "power of an output is 0.0"),
    (lambda: Output(torch.zeros(2, 2)), "The mean of an output"),
    (lambda: Output(None, torch.full((2, 2), torch.nan)), "The matrix of an output"),
    (lambda: Output(torch.zeros(3), torch.zeros(2, 2)), "has 3 numbers, but its matrix takes 2"),
    (lambda: Output(torch.zeros(3)).width(4), "gives 4 numbers for an image, but its output is made for 3"),
    (lambda: Output.fit(Z, 1.5), "shrinkage is 1.5"),
    (lambda: Output.fit(Z[0], 0.5), "is fitted to features"),
    (lambda: Output.fit(Z[:, :1], 0.5), "give several of each"),
    (lambda: Output.fit(Z / 0, 0.5), "NaN or infinite"),
    (lambda: Output.fit(Z, 0.5, torch.tensor([1, 2])), "counts must say"),
    (lambda: Output.fit(Z, 0.5, torch.full((6,), 31)), "counts must say"),
    (lambda: Output.fit(Z[:, :1].expand(6, 5, 8), 0.0), "singular"),
    (lambda: Output.of({}, {"power": "1", "unit_length": True}), "none of ours"),
    (lambda: Output.of({}, None), "none of ours"),
]


@pytest.mark.parametrize(("call", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_cannot_be_an_output_is_refused(call: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        call()
