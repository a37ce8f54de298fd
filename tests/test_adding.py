"""The steps of docs/adding.md, carried out as they stand there.

Blocks of code are taken from the page. What joins by an entry point is put beside kcciol as an installer would do it;
what is a row in one of our own tables goes into a copy of kcciol, which another process runs.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kcciol
import kcciol.config
from kcciol.cli import main
from kcciol.config import DataConfig
from kcciol.data import DATASETS
from kcciol.encoders import ENCODERS
from kcciol.errors import UserError
from kcciol.learners import LEARNERS
from kcciol.plugins import Registry

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "tests" / "plugin"
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", (ROOT / "docs/adding.md").read_text("utf-8"), re.M))
SMALL = "--data.size 16 --net.channels 4 --net.strides 2 2 --phase1.steps 2 --quiet"
SHORT = "--phase2.steps 1 --phase3.steps 1"
STREAMS = "--classes 2 --trajectories 2 --search-trajectories 1"

Bring = Callable[..., Path]
Typed = Callable[..., str]
RUN = """
import shlex, sys
from kcciol.cli import main
for line in sys.argv[1:]:
    try:
        code = main(shlex.split(line))
    except SystemExit as end:  # --help
        code = end.code
    if code:
        sys.exit(code)
"""


def blocks(title: str, language: str) -> list[str]:
    """The blocks of code of a section, in this language."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", SECTIONS[title], re.M | re.S)
    return [textwrap.dedent(block) for _, block in found]


def block(title: str, language: str) -> str:
    (only,) = blocks(title, language)
    return only


def commands(title: str) -> list[list[str]]:
    """The words after `kcciol` in each line that is typed."""
    lines = [shlex.split(line) for line in block(title, "sh").splitlines()]
    assert {line[0] for line in lines} == {"kcciol"}
    return [line[1:] for line in lines]


def points_of(project: str) -> dict[str, dict[str, str]]:
    """The entry points in (part of) a pyproject.toml, by group."""
    found: dict[str, dict[str, str]] = tomllib.loads(project)["project"]["entry-points"]
    return found


# --- in another package -----------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to install into."""
    path, before = tmp_path / "site", set(sys.modules)
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    yield path
    for name in set(sys.modules) - before:
        if (path / name.partition(".")[0]).exists() or (path / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def bring(site: Path) -> Bring:
    """Install what has these entry points; the folder that says so."""

    def run(*projects: str) -> Path:
        info = site / "theirs-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        every = [group for project in projects for group in points_of(project).items()]
        lines = [line for group, here in every for line in (f"[{group}]", *(f"{k} = {v}" for k, v in here.items()))]
        (info / "entry_points.txt").write_text("\n".join(lines))
        return info

    return run


@pytest.fixture
def stripes(site: Path) -> None:
    (site / "stripes.py").write_text(block("A data set", "python"), encoding="utf-8")


@pytest.mark.usefixtures("stripes")
def test_a_data_set(
    bring: Bring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    info = bring(block("A data set", "toml"))
    assert main(["data", "list"]) == 0
    assert "stripes" in capsys.readouterr().out
    check, show, train = commands("A data set")
    assert main(check) == 0
    assert "base       6 classes, 120 images, 20 to 20 a class" in capsys.readouterr().out
    assert main(show) == 0
    assert (tmp_path / "sheet.png").is_file()
    assert main([*train, *SMALL.split(), *SHORT.split(), "--out", "run"]) == 0
    assert main(["evaluate", "run", *STREAMS.split()]) == 0
    assert "stripes" in (tmp_path / "run" / "config.toml").read_text()
    shutil.rmtree(info)  # the package goes; what was learned on its images stays of use
    with pytest.raises(UserError, match="There is no data set 'stripes'"):
        kcciol.load_data(DataConfig(name="stripes"))
    assert kcciol.load("run/phase3.safetensors").base_names[0] == "1 bars"


def test_what_is_no_data_set_is_refused(bring: Bring) -> None:
    bring('[project.entry-points."kcciol.data"]\nstripes = "json:loads"')
    with pytest.raises(UserError, match=r"'stripes' of the package theirs cannot be used \(TypeError: its entry point"):
        kcciol.load_data(DataConfig(name="stripes"))


@pytest.mark.parametrize("title", ["A learner", "An encoder"])
def test_a_learner_and_an_encoder(title: str, bring: Bring, site: Path) -> None:
    """tests/test_plugin.py uses them as the page says; here the page and what it shows are held together."""
    shutil.copytree(PLUGIN / "kcciol_example", site / "kcciol_example")
    project = block(title, "toml")
    ((group, brought),) = points_of(project).items()
    assert brought.items() <= points_of((PLUGIN / "pyproject.toml").read_text())[group].items()
    bring(project)
    images = kcciol.load_data(DataConfig(name="glyphs", size=28, base_classes=1, novel_classes=2)).novel.images[:, 0]
    exec(block(title, "python"), {"images": images})


def test_a_network_of_ones_own(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: kcciol.config.Config
) -> None:
    monkeypatch.chdir(tmp_path)
    network, later = blocks("A network of your own", "python")
    (site / "mynet.py").write_text(network, encoding="utf-8")
    train, evaluate = commands("A network of your own")
    assert main([*train, *SMALL.split(), *SHORT.split()]) == 0
    assert main([*evaluate, *STREAMS.split()]) == 0
    assert 'module = "mynet:Net"' in Path("runs/mynet/config.toml").read_text()
    data, found = kcciol.load_data(tiny.data), dict[str, Any]()
    net = importlib.import_module("mynet").Net(data.base.image_shape)
    exec(later, {"config": tiny, "data": data, "net": net}, found)
    assert found["encoder"].features(data.novel.images).shape == (*data.novel.images.shape[:2], 128)


def test_a_command(bring: Bring, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "hello.py").write_text(block("A command", "python"), encoding="utf-8")
    bring(block("A command", "toml"))
    *_, greet = commands("A command")
    assert main(greet) == 0
    assert capsys.readouterr().out == "Hello, world.\nHello, world.\n"
    assert main(["hello", "world", "--times", "0"]) == 2
    assert capsys.readouterr().err == "kcciol: --times is 0, but must be at least 1.\n"
    assert main([]) == 0
    assert re.search(r"^  hello +Greet someone: kcciol hello NAME\.$", capsys.readouterr().out, re.M)


@pytest.mark.parametrize("where", ["json:__doc__", "json:nothing", "nothing"])
def test_what_is_no_command_is_refused(where: str, bring: Bring, capsys: pytest.CaptureFixture[str]) -> None:
    bring(f'[project.entry-points."kcciol.commands"]\nhello = "{where}"')
    assert main(["hello"]) == 2
    sentence = "kcciol: The command 'hello' of the package theirs cannot be used"
    assert capsys.readouterr().err.startswith(sentence)
    assert main([]) == 0  # the others are listed all the same
    shown = capsys.readouterr()
    assert "reproduce" in shown.out
    assert shown.err.startswith(sentence)


# --- here -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registry", "name", "where"),
    [
        (DATASETS, "stripes", "stripes:DATASET"),
        (LEARNERS, "moving-mean", "kcciol_example.moving_mean:MovingMean"),
        (ENCODERS, "pixels", "kcciol_example.pixels:pixels"),
    ],
)
@pytest.mark.usefixtures("stripes")
def test_one_of_our_own_is_one_line(
    registry: Registry[Any], name: str, where: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PLUGIN / "kcciol_example", site / "kcciol_example")
    with pytest.raises(UserError, match=f"There is no {registry.noun} '{name}'"):
        registry.find(name)
    monkeypatch.setitem(registry.ours, name, where)
    assert registry.find(name) is registry[name] is not None
    assert name in registry
    assert registry.package(name) == ""


def test_a_new_data_set_of_our_own_loads(stripes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS.ours, "stripes", "stripes:DATASET")
    splits = kcciol.load_data(DATASETS["stripes"].defaults)
    assert (len(splits.base), len(splits.novel), splits.novel.image_shape) == (6, 4, (1, 28, 28))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source to change."""
    shutil.copytree(Path(kcciol.__file__).parent, tmp_path / "src" / "kcciol")
    return tmp_path


@pytest.fixture
def typed(copy: Path) -> Typed:
    """What commands of the copy print, one after another in one process."""

    def run(*lines: Sequence[str]) -> str:
        env = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200"}
        words = [sys.executable, "-c", RUN, *map(shlex.join, lines)]
        result = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True, timeout=100)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def carry_out(title: str, root: Path) -> None:
    """Write the new files and the rows of a section, each into the file that the text before it names last."""
    for text, language, body in re.findall(r"(.*?)^ *```(\w+)\n(.*?)^ *```$", SECTIONS[title], re.M | re.S):
        if language in ("python", "diff"):
            path = root / re.findall(r"`(src/kcciol/\S+?\.py)`", text)[-1]
            code = textwrap.dedent(body)
            path.write_text(code if language == "python" else changed(path.read_text("utf-8"), code), "utf-8")


def changed(text: str, diff: str) -> str:
    """A text with the lines that a diff adds; those around them must be there, once."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if not line.startswith("+"))
    assert text.count(old) == 1, old
    return text.replace(old, "".join(line[1:] for line in lines))


def test_a_representation_of_our_own(copy: Path, typed: Typed) -> None:
    carry_out("A representation", copy)
    shown, train, evaluate = commands("A representation")
    said = typed(shown, [*train, *SMALL.split()], [*evaluate, *STREAMS.split()])
    assert "oml, with the l1 term" in said
    run = copy / evaluate[-1]
    assert kcciol.config.read(run / "config.toml").representation == "oml-l1"
    assert "l1" in json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(list(run.glob("evaluation*.json"))) == 1


def test_a_table_column_of_our_own(copy: Path, typed: Typed) -> None:
    carry_out("A table column", copy)
    typed(*commands("A table column"))
    table = json.loads((copy / "runs/rehearsal/results/table1.json").read_text())
    assert table["columns"] == ["kcciol-first"]
    assert table["settings"]["kcciol-first"]["meta"]["order"] == "first"


def test_a_command_of_our_own(copy: Path, typed: Typed) -> None:
    carry_out("A command", copy)
    said = typed(*commands("A command"), [])
    assert "How often." in said
    assert said.count("Hello, world.\n") == 2
    assert "Greet someone: kcciol hello NAME." in said
