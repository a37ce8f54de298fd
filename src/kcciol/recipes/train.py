"""A recipe from its first step to the encoder, in a folder that can be resumed.

config.toml              the recipe
record.json              command, versions, hardware; the same of each time it was resumed; which images
metrics.jsonl            a line every engine.log_every steps
checkpoint.safetensors   where to resume
encoder.safetensors      what was learned: network, preprocessing and output in one file
encoder-step1000.safe... with engine.keep: the same at each checkpoint
data-root                where the data lay on this machine; not to be shared
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kcciol.data import locate, require_outside
from kcciol.data.classset import ClassSet
from kcciol.encoders import saved
from kcciol.encoders.output import Output
from kcciol.engine.device import pick_device
from kcciol.engine.loop import Diverged, run_phases
from kcciol.engine.record import record
from kcciol.engine.run_folder import (
    IMAGES,
    OWN_SETTINGS,
    RECORD,
    RESUMED,
    RunFolder,
    event_writer,
    require_same,
    resumed,
    writable,
)
from kcciol.errors import UserError, require_kind
from kcciol.files import path_of, write_text
from kcciol.files.tensors import Format, Tensors, read_tensors, write_tensors
from kcciol.random import keyed
from kcciol.recipes.config import Recipe, recipe_in
from kcciol.recipes.data import classes_of
from kcciol.recipes.step import RecipeStep
from kcciol.recipes.views import KINDS, Views, views_of
from kcciol.serialization import read_toml, to_dict, to_toml

FORMAT = Format("recipe", ())
LOOKS = 512  # images that go through the network at once when its output is fitted


@dataclass
class RecipeState:
    """Where a run stands."""

    step: int
    tensors: Tensors

    @property
    def phase(self) -> int:
        return 1


class RecipeFolder(RunFolder):
    """A run's folder; what was learned is an encoder."""

    @property
    def encoder(self) -> Path:
        return self.path / "encoder.safetensors"

    def phase(self, number: int) -> Path:
        return self.encoder

    def kept(self, number: int, step: int) -> Path:
        return self.path / f"encoder-step{step}.safetensors"


def train_encoder(
    recipe: Recipe, base: ClassSet, out: Path | str, resume: bool = False, quiet: bool = False
) -> RecipeFolder:
    """Train on the base classes of `kcciol.load_data(recipe.data)` and leave everything in the folder `out`; resume
    continues the run in it."""
    require_kind(recipe, Recipe, "recipe", 'kcciol.recipe("characters")')
    require_kind(base, ClassSet, "base", "data.base")
    folder, device = RecipeFolder(path_of(out)), pick_device(recipe.engine.device)
    base = classes_of(recipe, base)
    base.require(2, "training an encoder")
    if recipe.engine.tensorboard:
        event_writer()  # says at once when it is not there
    with contextlib.ExitStack() as stack:
        if resume:
            own = _recipe_to_resume(folder)
            stack.enter_context(folder.locked())
            at = _reopen(folder, own, recipe, base)
        else:
            require_outside(folder.path, recipe.data)
            stack.enter_context(folder.begun(folder.require_new))
            at = RecipeState(0, {})
            with writable(folder.path):
                RECORD.write(folder.record, record() | {IMAGES: base.identity, RESUMED: []})
                write_text(folder.config, to_toml(recipe))
        folder.remember_root(Path(locate(recipe.data).root))
        folder.rewind_metrics(1, at.step)
        run_phases(RecipeRun(recipe, base, folder, device, at), (1, at.step), recipe.engine, device, quiet)
    return folder


def _recipe_to_resume(folder: RecipeFolder) -> Recipe:
    """What the run in a folder was started with."""
    if not folder.config.exists():
        raise UserError(f"There is no run in {folder.path} to resume: leave --resume out to start one.")
    if (own := recipe_in(folder.path)) is None:
        read_toml(folder.config)  # it may be damaged
        raise UserError(f"The run in {folder.path} is none of a recipe: choose another folder.")
    return own


def _reopen(folder: RecipeFolder, own: Recipe, recipe: Recipe, base: ClassSet) -> RecipeState:
    """Where the run in a folder stands, when it is of this recipe and these images."""
    require_same(own, recipe, f"The run in {folder.path} was started", OWN_SETTINGS)
    folder.require_images(base.identity)
    if not folder.checkpoint.exists():  # it was cut before the first
        return RecipeState(0, {})
    header, tensors = read_tensors(folder.checkpoint, FORMAT)
    step = header.get("step")
    if type(step) is not int or not 0 <= step <= recipe.rate.steps:
        raise UserError(f"The checkpoint {folder.checkpoint} is damaged (step {step!r}): use another copy.")
    at = RecipeState(step, tensors)
    if step < recipe.rate.steps or not folder.record.exists():
        began = RECORD.read(folder.record) if folder.record.exists() else {}
        RECORD.write(folder.record, {IMAGES: base.identity} | resumed(began, at))
    return at


@dataclass(frozen=True)
class RecipeRun:
    """A `Training` of the loop, of one phase."""

    recipe: Recipe
    base: ClassSet
    folder: RecipeFolder
    device: torch.device
    at: RecipeState

    @property
    def steps(self) -> tuple[int, ...]:
        return (self.recipe.rate.steps,)

    def phase(self, number: int, resumes: bool) -> RecipePhase:
        return RecipePhase(self, self.at if resumes else None)

    def save_phase(self, number: int) -> None:
        """It was cut between its last step and the encoder."""
        RecipePhase(self, self.at).save_encoder(self.folder.encoder)


class RecipePhase:
    """The one phase of a recipe: a `Phase` of the loop."""

    keeps_window = False
    number = 1

    def __init__(self, run: RecipeRun, at: RecipeState | None) -> None:
        self.run, self.window = run, list[Tensor]()
        recipe, self.steps = run.recipe, run.recipe.rate.steps
        self.step = RecipeStep(recipe, views_of(recipe, run.base, run.device), len(run.base), run.device)
        if at is not None:
            self._restore(at)
        self._write = run.folder.logger(recipe.engine.tensorboard, 0)

    def _restore(self, at: RecipeState) -> None:
        path = self.run.folder.checkpoint
        for name, tensor in self.step.named_state.items():
            found = at.tensors.get(name)
            if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
                raise UserError(f"The checkpoint {path} is of another network ({name}): use that of this run.")
            tensor.copy_(found)

    def watch(self, metrics: Tensor, done: int) -> float:
        if not torch.isfinite(metrics).all():
            raise self._diverged("loss", done)
        return float(metrics[:, 0].mean())

    def log(self, done: int, metrics: Tensor, speed: float) -> None:
        images = speed * self.run.recipe.rate.batch
        values = {"loss": float(metrics[:, 0].mean()), "images_per_second": round(images, 1)}
        self._write(self.number, done, values)

    def save(self, done: int) -> None:
        folder, engine, state = self.run.folder, self.run.recipe.engine, self.step.named_state
        if not all(torch.isfinite(tensor).all() for tensor in state.values()):
            raise self._diverged("state", done)
        if done == self.steps:
            self.save_encoder(folder.encoder)
        elif engine.keep and done % engine.checkpoint_every == 0:
            self.save_encoder(folder.kept(self.number, done))
        write_tensors(folder.checkpoint, FORMAT, {"step": done}, state)

    def _diverged(self, what: str, done: int) -> Diverged:
        return Diverged(
            f"The {what} is no longer finite near step {done}, what was saved before it is kept in "
            f"{self.run.folder.path}: train into another --out with a lower rate.rate."
        )

    def save_encoder(self, path: Path) -> None:
        """The averaged weights with the output that belongs to them."""
        run, recipe = self.run, self.run.recipe
        network = self.step.encoder()
        views = self.step.views
        output = fit_output(recipe, network, views)
        preprocessing = KINDS[recipe.view.kind].preprocessing(recipe)
        config = to_dict(recipe)
        del config["data"]["root"]
        training = {"recipe": config, "classes": len(run.base), "images": run.base.identity, "record": record()}
        saved.save(path, network, preprocessing, output, training)


@torch.no_grad()
def fit_output(recipe: Recipe, network: torch.nn.Module, views: Views) -> Output:
    """The output for what a network gives for base images, seen as they are or changed as in training."""
    features, labels = [], []
    count, device = len(views.images), views.images.device
    for look in range(max(1, recipe.output.views)):
        for part in torch.split(torch.arange(count, device=device), LOOKS):
            if recipe.output.views:
                keys = keyed(part, look, recipe.seed)
                x = views.seen(part, torch.zeros_like(part), keys)
            else:
                x = views.plain(part)
            features.append(network(x.contiguous(memory_format=torch.channels_last)).float().cpu())
            labels.append(views.labels[part].cpu())
    z, y = torch.cat(features), torch.cat(labels)
    counts = torch.bincount(y)
    rows = z.new_zeros(len(counts), int(counts.max()), z.shape[1])
    order = y.argsort(stable=True)
    place = torch.arange(len(y)) - (counts.cumsum(0) - counts)[y[order]]
    rows[y[order], place] = z[order]
    return Output.fit(rows, recipe.output.shrinkage, counts)
