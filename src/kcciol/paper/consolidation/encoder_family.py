"""Everything that goes on from one encoder that a recipe of ours has trained."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from torch import nn

from kcciol.config import GIVEN, Config
from kcciol.data.classset import Splits
from kcciol.encoders import saved
from kcciol.encoders.run import Representation
from kcciol.encoders.run import load as load_representation
from kcciol.engine.checkpoint import Checkpoint
from kcciol.engine.device import pick_device
from kcciol.engine.run_folder import RunFolder
from kcciol.meta.start import first_W_
from kcciol.nets.classification import Classification
from kcciol.paper.consolidation.encoder_heads import WHITENED, EncoderColumn, EncoderMeasurer, columns_of
from kcciol.paper.consolidation.encoder_plan import EncoderCondition, EncoderSetting
from kcciol.paper.consolidation.encoder_sets import Seen, load_raw, load_seen
from kcciol.paper.consolidation.family import Candidate, Family
from kcciol.paper.consolidation.heads import MEANS
from kcciol.paper.consolidation.plan import Condition
from kcciol.paper.progress import say
from kcciol.recipes.train import RecipeFolder, train_encoder


@dataclass(frozen=True)
class EncoderFamily(Family):
    """A recipe and a seed. What the recipe has trained is kept as the end of a phase 1, with the class means of base
    classes as W, so that phases 2 and 3 go on from it as from any other."""

    setting: EncoderSetting

    def load(self) -> Splits:
        return load_seen(self.setting, self.root)

    def require_images(self) -> None:
        load_raw(self.setting, self.root)

    @property
    def heads(self) -> tuple[str, ...]:
        return tuple(columns_of(self.setting))

    @property
    def leader(self) -> str:
        """Class means on what our encoders give, which is how these are used."""
        return str(EncoderColumn(WHITENED, MEANS, max(self.setting.lengths())))

    @property
    def part(self) -> str:
        return "encoders"

    def module(self, condition: Condition) -> nn.Module | None:
        """What is trained: features have one length, or else W and their scale would have to be learned first."""
        moving = isinstance(condition, EncoderCondition) and condition.moving
        return Seen(self.setting.recipe, self.setting.length, moving)

    def _load(self, candidate: Candidate) -> Representation:
        """What is measured: features as the network gives them."""
        return load_representation(candidate.path, pick_device(self.device), Seen(self.setting.recipe))

    @functools.cached_property
    def _measurer(self) -> EncoderMeasurer:
        return EncoderMeasurer(self.setting, self.data, self.seed)

    def _train(self, condition: Condition, option: str, config: Config) -> RunFolder:
        if condition.phase > 1 or not isinstance(condition, EncoderCondition):
            return super()._train(condition, option, config)
        folder = self._run(condition, option)
        if not folder.phase(1).exists():
            network = Seen(self.setting.recipe, self.setting.length)
            network.network.load_state_dict(self._trained(condition).state_dict())
            folder.path.mkdir(parents=True, exist_ok=True)
            self._as_phase1(network, config).save(folder.phase(1))
            say(f"{self}: {condition.name}: trained")
        return folder

    def _trained(self, condition: EncoderCondition) -> nn.Module:
        """The network at the end of the recipe."""
        folder = RecipeFolder(self.folder / "recipes" / condition.name.replace(" ", "-"))
        if not folder.encoder.exists():
            recipe = self.setting.recipe_of(condition, self.seed)
            engine = replace(recipe.engine, device=self.device)  # type: ignore[arg-type]
            recipe = replace(recipe, engine=engine, data=replace(recipe.data, root=self.root))
            base = load_raw(self.setting, self.root).base
            train_encoder(recipe, base, folder.path, folder.config.exists(), quiet=True)
        return saved.load(str(folder.encoder)).network

    def _as_phase1(self, network: Seen, config: Config) -> Checkpoint:
        base, config = self.data.base, replace(config, net=replace(config.net, module=GIVEN))
        problem = Classification(config.net, base.image_shape, len(base), network)
        Theta = problem.init(self.seed)
        first_W_("means", problem, Theta, base)
        return Checkpoint(config, base.image_shape, base.names, 1, 0, problem.tensors(Theta))
