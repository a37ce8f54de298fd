"""A module of one's own as h_theta: what is refused, what is drawn, what decides its features."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from kcciol.config import Config, NetConfig
from kcciol.data.classset import Splits
from kcciol.encoders.run import Representation
from kcciol.errors import UserError
from kcciol.evaluation.measure import model_of
from kcciol.nets.classification import Classification
from kcciol.nets.module import ModuleEncoder
from kcciol.testing import check_encoder
from tests.nets import networks

IMAGE, HERE = (1, 12, 11), "tests.nets.networks"

REFUSED = [
    ("json", "net.module is 'json', but must be package.module:factory"),
    ("no.such:thing", r"'no\.such:thing' cannot be imported \(ModuleNotFoundError: No module named 'no'\): install"),
    (f"{HERE}:nothing", "cannot be imported .AttributeError: .*nothing"),
    ("json:__name__", "'json:__name__' must be a class of torch.nn.Module, or a function that is annotated"),
    ("os:system", "'os:system' must be a class of torch.nn.Module"),
    ("json:loads", "'json:loads' must be a class of torch.nn.Module"),
    (f"{HERE}:unsaid", "or a function that is annotated to return one: name another one, or add -> torch.nn.Module"),
    (f"{HERE}:broken", r"cannot make a network for images of shape \(1, 12, 11\) \(ZeroDivisionError: nothing is"),
    (f"{HERE}:none", "what net.module .* returns is a NoneType, but must be a Module"),
    (f"{HERE}:colour_only", r"cannot read images of shape \(1, 12, 11\) \(RuntimeError: .*channels"),
    (f"{HERE}:Maps", r"makes features of shape \(2, 5, 5, 5\) of two images, but must make a vector of each"),
    (f"{HERE}:Missing", "makes features that are not finite"),
    (f"{HERE}:Whole", "makes features of torch.int64, but they must be of torch.float32"),
    (f"{HERE}:Pair", "returns a tuple, but must return a tensor of features"),
    (f"{HERE}:Wide", r"has conv1\.weight of torch\.float64, but must be of torch\.float32: convert it by \.float\(\)"),
    (f"{HERE}:Empty", "has no parameters, so there is nothing to train"),
    ("given", "was given as an object in Python: give it again, as module="),
]


@pytest.mark.parametrize(("name", "words"), REFUSED)
def test_what_is_no_network_is_refused(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        Classification(NetConfig(module=name), IMAGE, 5)
    assert "\n" not in str(raised.value)


def test_what_is_no_module_is_refused_as_an_object() -> None:
    wrong: Any = networks.Paper
    with pytest.raises(UserError, match="module is a type, but must be a Module"):
        Classification(NetConfig(), IMAGE, 5, wrong)
    with pytest.raises(UserError, match="the module given makes features of shape"):
        Classification(NetConfig(), IMAGE, 5, networks.Maps(IMAGE))
    with pytest.raises(UserError, match="makes other parameters than the module given has"):
        Classification(NetConfig(module=f"{HERE}:batch"), IMAGE, 5, networks.Paper(IMAGE))
    with pytest.raises(UserError, match="makes a network of other shapes each time"):
        Classification(NetConfig(module=f"{HERE}:Ever"), IMAGE, 5).init(0)


def test_first_weights_are_a_function_of_the_seed_and_nothing_else_is_drawn() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again, other = (Classification(NetConfig(module=f"{HERE}:batch"), IMAGE, 5).init(s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_module_given_keeps_its_weights_and_is_left_alone() -> None:
    net = networks.batch(IMAGE).requires_grad_(False)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    problem = Classification(NetConfig(), IMAGE, 5, net)
    Theta = problem.init(0)
    x = torch.randint(0, 256, (4, *IMAGE), dtype=torch.uint8)
    rows = problem.encoder.rows(x)
    trained = problem.encoder.apply(problem.theta(Theta), rows, torch.float32, training=True)
    assert not torch.equal(problem.buffers["buffer.norms.0.running_mean"], before["norms.0.running_mean"])
    problem = Classification(NetConfig(), IMAGE, 5, net)
    found = problem.encoder.apply(problem.theta(Theta), rows, torch.float32)
    torch.testing.assert_close(found, net.eval()(x / 255))
    assert not torch.allclose(found, trained)
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_lazy_layers_and_constants_that_are_not_kept() -> None:
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(7), nn.ReLU())
    net.register_buffer("limit", torch.tensor(-torch.inf), persistent=False)  # which no checkpoint would take
    problem = Classification(NetConfig(), IMAGE, 5, net)
    assert problem.encoder.features == 7
    assert problem.buffers == {}
    assert problem.theta(problem.init(3))["1.weight"].shape == (7, 132)


@pytest.fixture
def representation(tiny: Config, tiny_data: Splits) -> Representation:
    config = dataclasses.replace(tiny, net=dataclasses.replace(tiny.net, module=f"{HERE}:batch"))
    return Representation.untrained(config, tiny_data.base)


def test_it_is_an_encoder(representation: Representation, tiny_data: Splits) -> None:
    check_encoder(representation, tiny_data.novel.images[:, 0])
    assert representation.width == 8


def test_the_identity_is_of_weights_buffers_and_name(
    representation: Representation, tiny: Config, tiny_data: Splits
) -> None:
    def identity(net: nn.Module) -> str:
        return Representation.untrained(tiny, tiny_data.base, module=net).identity

    shape = tiny_data.base.image_shape
    net = networks.batch(shape)
    first = identity(net)
    assert identity(net) == first
    net.norms[0].running_mean[0] += 1  # type: ignore[index, operator]
    moved = identity(net)
    with torch.no_grad():
        net.first.weight[0, 0, 0, 0] += 1
    assert len({first, moved, identity(net), representation.identity}) == 4


def test_threads_that_ask_at_once_get_what_one_gets(representation: Representation, tiny_data: Splits) -> None:
    """Each with a representation of its own weights, on one module, which holds those of whoever asks."""
    other = Representation(
        representation.config, representation.problem, representation.Theta * 0.5, representation.base_names
    )
    images = tiny_data.novel.images[:, :4]
    expected = [r.features(images) for r in (representation, other)]
    meeting = threading.Barrier(2, timeout=60)

    def ask(which: int) -> bool:
        meeting.wait()
        return all(torch.equal((representation, other)[which].features(images), expected[which]) for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(ask, range(2)))


def test_learners_of_the_whole_network_say_that_they_cannot(representation: Representation) -> None:
    assert isinstance(representation.problem.encoder, ModuleEncoder)
    with pytest.raises(UserError, match=r"know the paper's convolutions only, .* train the head only"):
        model_of(representation, "all")


def test_a_name_that_a_file_gives_is_called_only_if_it_makes_networks() -> None:
    """Such as of a checkpoint, which may come from anyone."""
    for name in ("shutil:rmtree", "pathlib:Path", "builtins:exit", "os:_exit"):
        with pytest.raises(UserError, match=r"must be a class of torch\.nn\.Module"):
            Classification(NetConfig(module=name), IMAGE, 5)
