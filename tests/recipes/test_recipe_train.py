"""A recipe's run: what lies in its folder, that it is resumed to the bit, and what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kcciol
from kcciol.data.classset import ClassSet
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.saved import SavedEncoder
from kcciol.engine.loop import Diverged
from kcciol.engine.run_folder import RECORD
from kcciol.engine.stop import Stopped
from kcciol.errors import UserError
from kcciol.files.tensors import read_tensors
from kcciol.recipes.config import Recipe
from kcciol.recipes.data import classes_of
from kcciol.recipes.step import RecipeStep
from kcciol.recipes.train import FORMAT, fit_output, train_encoder
from kcciol.recipes.views import KINDS
from tests.recipes.small import COLOUR, INK, RECIPES, changed, classes_for, glyphs, patches, step_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind, not cut."""
    folder = tmp_path_factory.mktemp("recipes")
    return {
        kind: train_encoder(recipe, classes_for(recipe), folder / kind, quiet=True).path
        for kind, recipe in RECIPES.items()
    }


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of one, to be spoilt."""
    return Path(shutil.copytree(runs["ink"], tmp_path / "run"))


def state(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return read_tensors(folder / "checkpoint.safetensors", FORMAT)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def cut_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes in the next run while this step is taken."""
    own = RecipeStep.__call__

    def interrupted(self: RecipeStep) -> None:
        if int(self.step) == step - 1:
            signal.raise_signal(signal.SIGINT)
        own(self)

    monkeypatch.setattr(RecipeStep, "__call__", interrupted)


# --- what a run leaves ------------------------------------------------------------------------------------------------


def test_a_run_leaves_all_that_is_said(runs: dict[str, Path]) -> None:
    folder = runs["ink"]
    names = {"config.toml", "record.json", "metrics.jsonl", "checkpoint.safetensors", "encoder.safetensors", ".lock"}
    assert {path.name for path in folder.iterdir()} == names
    assert [(line["phase"], line["step"]) for line in lines(folder)] == [(1, n) for n in (4, 5, 8, 10, 12)]
    assert all(line["loss"] > 0 and line["images_per_second"] > 0 for line in lines(folder))
    record = RECORD.read(folder / "record.json")
    assert (record["images"], record["resumed"]) == (glyphs().identity, [])
    assert record["versions"]["torch"] == torch.__version__
    assert state(folder)[0]["step"] == 12


@pytest.mark.parametrize("kind", RECIPES)
def test_the_encoder_is_the_network_of_the_last_step_with_its_output(kind: str, runs: dict[str, Path]) -> None:
    recipe, opened = RECIPES[kind], kcciol.open_encoder(runs[kind] / "encoder.safetensors")
    assert isinstance(opened, SavedEncoder)
    assert kcciol.open_encoder(runs[kind]).identity == opened.identity  # the folder is enough
    assert opened.training["classes"] == 5
    assert opened.training["recipe"]["rate"]["steps"] == 12
    assert "root" not in opened.training["recipe"]["data"]  # no paths of this machine
    step = step_of(recipe)
    for _ in range(recipe.rate.steps):
        step()
    network = step.encoder()
    preprocessing = KINDS[kind].preprocessing(recipe)
    own = NetworkEncoder(network, preprocessing, fit_output(recipe, network, step.views))
    images = classes_for(recipe).images[:, 0]
    assert torch.allclose(opened.features(images), own.features(images), atol=0.02)  # the file has half precision
    assert (opened.features(images) * own.features(images)).sum(1).min() > 0.999
    assert opened.width == recipe.net.width


def test_checkpoints_can_be_kept(tmp_path: Path) -> None:
    folder = train_encoder(changed(INK, engine__keep=True), glyphs(), tmp_path, quiet=True)
    kept = sorted(path.name for path in folder.path.glob("encoder*"))
    assert kept == ["encoder-step10.safetensors", "encoder-step5.safetensors", "encoder.safetensors"]
    first, last = (kcciol.open_encoder(folder.path / name) for name in kept[1:])
    assert first.identity != last.identity


def test_the_output_is_fitted_to_what_base_images_give() -> None:
    """Whitened features of a class spread alike in all directions; images that are not there do not count."""
    step = step_of(changed(INK, output__shrinkage=1e-4, output__views=40))
    output = fit_output(step.recipe, step.encoder(), step.views)
    assert output.matrix is not None
    assert output.matrix.shape == (6, 6)
    plain = fit_output(changed(INK, output__views=0), step.encoder(), step.views)
    features = step.encoder()(step.views.plain(torch.arange(len(step.views.images)))).double()
    assert plain.mean is not None
    assert torch.allclose(plain.mean.double(), features.mean(0), atol=1e-5)


def test_what_is_trained_on(tmp_path: Path) -> None:
    assert classes_of(INK, glyphs()) is glyphs()
    few = classes_of(changed(INK, data__train_samples=2), glyphs())
    assert few.counts.tolist() == [2] * 5
    more = classes_of(changed(INK, extra=7), glyphs())
    assert len(more) == 12
    assert more.counts.tolist() == [4, 4, 4, 4, 3] + [20] * 7
    assert torch.equal(more.images[:5, :4], glyphs().images)
    with pytest.raises(UserError, match="cannot be trained on together: set extra to 0"):
        train_encoder(changed(INK, extra=7), patches(), tmp_path / "x", quiet=True)


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("step", [1, 5, 11, 12])
def test_a_run_that_is_cut_ends_in_the_same_bits(
    kind: str, step: int, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES[kind]
    with monkeypatch.context() as patch:
        cut_after(step, patch)
        with pytest.raises(Stopped, match=f"Stopped in training after step {step}, and saved there"):
            train_encoder(recipe, classes_for(recipe), tmp_path, quiet=True)
    assert state(tmp_path)[0]["step"] == step
    assert (tmp_path / "encoder.safetensors").exists() == (step == 12)
    train_encoder(recipe, classes_for(recipe), tmp_path, resume=True, quiet=True)
    found, wanted = state(tmp_path)[1], state(runs[kind])[1]
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert kcciol.open_encoder(tmp_path).identity == kcciol.open_encoder(runs[kind]).identity
    assert {line["step"]: line["loss"] for line in lines(tmp_path)}.keys() >= {4, 8, 12}
    assert [one["step"] for one in RECORD.read(tmp_path / "record.json")["resumed"]] == ([step] if step < 12 else [])


def test_an_encoder_that_is_missing_is_made_again(run: Path) -> None:
    before = kcciol.open_encoder(run).identity
    (run / "encoder.safetensors").unlink()
    (run / "record.json").unlink()
    train_encoder(INK, glyphs(), run, resume=True, quiet=True)
    assert kcciol.open_encoder(run).identity == before
    assert RECORD.read(run / "record.json")["images"] == glyphs().identity


def test_a_run_cut_before_its_first_checkpoint_begins_anew(run: Path) -> None:
    before = kcciol.open_encoder(run).identity
    for name in ("encoder", "checkpoint"):
        (run / f"{name}.safetensors").unlink()
    train_encoder(INK, glyphs(), run, resume=True, quiet=True)
    assert kcciol.open_encoder(run).identity == before
    assert [line["step"] for line in lines(run)] == [4, 5, 8, 10, 12]


def test_what_computes_may_change(run: Path) -> None:
    train_encoder(changed(INK, engine__log_every=7, data__root="elsewhere"), glyphs(), run, resume=True, quiet=True)


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(says: str, recipe: Recipe, base: Any, out: Any, resume: bool = False) -> None:
    with pytest.raises(UserError, match=says):
        train_encoder(recipe, base, out, resume, quiet=True)


def test_a_run_goes_on_with_its_own_only(run: Path) -> None:
    refused("There is a run in .* already: continue it", INK, glyphs(), run)
    refused(
        r"was started with rate.rate = 0.01, now it is 0.1", changed(INK, rate__rate=0.1), glyphs(), run, resume=True
    )
    refused(r"was started with seed = 0, now it is 1", changed(INK, seed=1), glyphs(), run, resume=True)
    images = glyphs().images.clone()
    images[0, 0, 0, 0, 0] += 1
    other = ClassSet(images, glyphs().counts, glyphs().names)
    refused("was started with other images than these", INK, other, run, resume=True)
    refused("There is no run in .* to resume", INK, glyphs(), run / "nowhere", resume=True)
    (run / "checkpoint.safetensors").write_bytes((run / "checkpoint.safetensors").read_bytes()[:-5])
    refused("is damaged", INK, glyphs(), run, resume=True)
    (run / "config.toml").write_text("no toml")
    refused("is not valid TOML", INK, glyphs(), run, resume=True)
    (run / "config.toml").write_text("seed = 0\n")
    refused("is none of a recipe", INK, glyphs(), run, resume=True)
    (run / "config.toml").unlink()
    refused("holds files of a run, but no config.toml", INK, glyphs(), run)


@pytest.mark.parametrize(
    ("name", "value"), [("Theta", torch.zeros(3)), ("average", None), ("v", torch.zeros(3).half())]
)
def test_a_checkpoint_of_another_network_is_refused(run: Path, name: str, value: Tensor | None) -> None:
    from kcciol.files.tensors import write_tensors

    _, tensors = state(run)
    del tensors[name]
    write_tensors(
        run / "checkpoint.safetensors", FORMAT, {"step": 5}, tensors | ({} if value is None else {name: value})
    )
    refused(rf"is of another network \({name}\)", INK, glyphs(), run, resume=True)
    write_tensors(run / "checkpoint.safetensors", FORMAT, {"step": 13}, tensors)
    refused(r"is damaged \(step 13\)", INK, glyphs(), run, resume=True)


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    one = ClassSet(glyphs().images[:, :1], glyphs().counts.clamp(max=1), glyphs().names)
    config: Any = kcciol.preset("quickstart")
    refused("Class .* has 1 image.* but training an encoder needs 2", INK, one, tmp_path / "x")
    refused("recipe is a Config, but must be a Recipe, such as kcciol.recipe", config, glyphs(), tmp_path / "x")
    refused("base is a Splits, but must be a ClassSet", INK, kcciol.load_data(INK.data), tmp_path / "x")
    refused("3 is not the name of a file", INK, glyphs(), 3)
    refused(r"The images are \(1, 24, 24\) .* but net.size is 16", COLOUR, glyphs(), tmp_path / "x")
    mine = changed(INK, data__name="folder", data__root=str(tmp_path))
    refused("lies in the data root .*: choose a folder outside of it", mine, glyphs(), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = RecipeStep.loss

    def spoilt(self: RecipeStep, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        return own(self, x, y, keys) * (float("nan") if int(self.step) == 6 else 1)

    monkeypatch.setattr(RecipeStep, "loss", spoilt)
    with pytest.raises(Diverged, match=r"The loss is no longer finite near step 7, .* with a lower rate.rate"):
        train_encoder(INK, glyphs(), tmp_path, quiet=True)
    assert state(tmp_path)[0]["step"] == 5


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecipeStep, "_update", lambda self: self.Theta[-1].fill_(float("inf")))
    recipe = changed(INK, rate__steps=1)
    with pytest.raises(Diverged, match=r"The state is no longer finite near step 1"):
        train_encoder(recipe, glyphs(), tmp_path, quiet=True)
    assert not (tmp_path / "encoder.safetensors").exists()


def test_a_recipe_in_place_of_a_representation_is_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not a saved checkpoint, but a saved encoder: kcciol.open_encoder opens it"):
        kcciol.load(run / "encoder.safetensors")
    config, data = kcciol.preset("quickstart"), kcciol.load_data(kcciol.preset("quickstart").data)
    with pytest.raises(UserError, match="is the recipe of an encoder, and no config of three phases") as error:
        kcciol.train(config, data.base, run, resume=True, quiet=True)
    assert "Or move it away" not in str(error.value)


def test_a_data_set_of_recipes_is_the_one_named() -> None:
    recipe: Recipe = changed(COLOUR, data__name="glyphs")
    assert kcciol.load_data(recipe.data).base.image_shape == (1, 16, 16)
