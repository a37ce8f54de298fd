"""The commands as a user types them: what they do, and what they say to bad input."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import kcciol
from kcciol.cli import COMMANDS, main
from kcciol.cli.listing import LISTS
from kcciol.config import Config, DataConfig, preset
from kcciol.files import replacing
from kcciol.paper.studies import gan, sine
from kcciol.serialization import to_toml

TINY_QUICKSTART = [
    *("--data.size", "16", "--data.base-classes", "12", "--data.novel-classes", "8", "--net.channels", "6"),
    *("--net.strides", "2", "1", "--phase1.steps", "12", "--phase2.steps", "5", "--phase3.steps", "5"),
    *("--trajectory.classes", "2", "--trajectory.remember", "5", "--evaluation.classes", "2", "4"),
    *("--evaluation.trajectories", "10", "--evaluation.search-trajectories", "2", "--engine.device", "cpu"),
]


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.toml").write_text(to_toml(tiny))
    assert main(["train", str(folder / "tiny.toml"), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def test_a_run_begins_in_a_folder_of_its_own(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", str(run.parent / "tiny.toml"), "--quiet", "--out"]
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    assert main([*words, str(tmp_path / "pictures")]) == 2
    assert "is no folder of a run, as 'cat' lies in it" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "pictures").iterdir() if path.name[0] != "."] == ["cat"]
    for empty in ("", "."):
        assert main([*words, empty]) == 2
        assert "--out is empty" in capsys.readouterr().err
    for runs in (run.parent, run.parent.parent):
        assert main([*words, str(runs)]) == 2
        assert "is no folder of a run" in capsys.readouterr().err
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("begun")
    assert main([*words, str(tmp_path / "logs")]) == 0


def test_a_run_goes_on_in_the_folder_that_one_is_in(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "plots").mkdir()
    (tmp_path / "run" / "phase3.safetensors").unlink()
    monkeypatch.chdir(tmp_path / "run")
    assert main(["train", ".", "--resume", "--quiet"]) == 0
    assert (tmp_path / "run" / "phase3.safetensors").exists()


def test_a_path_that_is_no_text_is_no_setting(tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    words = ["train", str(tmp_path / "tiny.toml"), "--quiet", "--out", str(tmp_path / "run"), "--data.root", "a\udce9b"]
    assert main(words) == 2
    assert "holds bytes that are no text" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.toml").exists()


def test_what_a_run_says_at_its_end_can_be_done(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    words = ["train", str(tmp_path / "tiny.toml"), "--data.samples", "7", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    (said,) = re.findall("`kcciol (.*?)`", capsys.readouterr().out.replace("\n", " "))
    assert said.endswith("--train-samples 6 --test-samples 1")
    assert main([*shlex.split(said), "--trajectories", "2", "--search-trajectories", "1"]) == 0


def test_escapes_in_a_config_are_shown(tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = "x\x1b[31mred"
    (tmp_path / "odd.toml").write_text(to_toml(dataclasses.replace(tiny, data=DataConfig(root=root))))
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "odd.toml"), "--help"])
    said = capsys.readouterr()
    assert "\x1b[31m" not in said.out + said.err
    assert "\\x1b[31mred" in said.out + said.err


@pytest.mark.parametrize("command", list(COMMANDS))
def test_help_explains_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: int | str | None = main([command, "--help"])
    except SystemExit as end:
        code = end.code
    assert code == 0
    assert "usage" in capsys.readouterr().out.lower()


def test_help_of_a_preset_shows_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "omniglot-literal", "--help"])
    shown = capsys.readouterr().out
    assert "--phase3.lam" in shown
    assert "1024" in shown


def test_no_arguments_print_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_quickstart_on_a_tiny_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quickstart", "--out", str(tmp_path / "q"), *TINY_QUICKSTART]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(column in shown for column in ("scratch", "phase 1", "phase 2", "phase 3"))
    result = json.loads((tmp_path / "q" / "quickstart.json").read_text())
    for column in ("scratch", "phase 1", "phase 2", "phase 3"):
        for n in ("2", "4"):
            cell = result["columns"][column][n]
            assert cell["test"]["n"] == 10
            assert 0 <= cell["test"]["mean"] <= 100
            assert cell["choice"]["rule"] == "stream"
    assert result["peak_memory_gib"] > 0
    pytest.importorskip("matplotlib")
    with Image.open(tmp_path / "q" / "quickstart.png") as picture:
        assert picture.size[0] > 300
    before = (tmp_path / "q" / "phase3.safetensors").read_bytes()
    assert main([*words, "--evaluation.classes", "3"]) == 0  # again, measured otherwise: nothing is trained twice
    assert list(json.loads((tmp_path / "q" / "quickstart.json").read_text())["columns"]["phase 3"]) == ["3"]
    assert (tmp_path / "q" / "phase3.safetensors").read_bytes() == before


def test_evaluate_writes_its_result(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--trajectories", "2"]) == 0
    (path,) = run.glob("evaluation-phase3-*.json")  # its settings are not the run's own
    result = json.loads(path.read_text())
    assert result["evaluation"]["trajectories"] == 2
    assert result["evaluation"]["classes"] == [2, 4]  # from the run's config
    assert set(result["classes"]["4"]) >= {"test", "train", "forgetting", "curve", "choice"}
    assert main(["evaluate", str(run), "--untrained", "--out", str(run / "u.json")]) == 0
    assert json.loads((run / "u.json").read_text())["untrained"] is True


def draw_pictures(root: Path) -> None:
    """A folder of pictures for each of twelve classes."""
    for name in "abcdefghijkl":
        (root / name).mkdir(parents=True)
        for i in range(8):
            picture = Image.new("L", (16, 16), 255)
            picture.putpixel((ord(name) % 16, i), 0)
            picture.save(root / name / f"{i}.png")


def test_classes_that_were_trained_on_are_not_novel(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_pictures(tmp_path / "images")
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    folder = ["--data.name", "folder", "--data.root", str(tmp_path / "images"), "--data.base-classes", "0"]
    run = str(tmp_path / "run")
    words = ["train", str(tmp_path / "tiny.toml"), *folder, "--data.novel-classes", "4", "--out", run, "--quiet"]
    assert main(words) == 0
    assert main(["evaluate", run]) == 0
    (tmp_path / "images" / "l").rename(tmp_path / "l")
    assert main(["evaluate", run]) == 2
    assert "'h' and 0 others were trained on" in capsys.readouterr().err


def test_a_run_remembers_where_its_data_lie(tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained with a root relative to the folder of then, and evaluated from another."""
    draw_pictures(tmp_path / "images")
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ["--data.name", "folder", "--data.root", "images", "--data.base-classes", "0", "--data.novel-classes", "4"]
    assert main(["train", "tiny.toml", *words, "--out", "run", "--quiet"]) == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["evaluate", "../run"]) == 0
    assert (tmp_path / "run" / "data-root").read_text() == str((tmp_path / "images").resolve())
    for path in (tmp_path / "run").iterdir():  # what is given to others says nothing of this machine
        assert path.name == "data-root" or str(tmp_path).encode() not in path.read_bytes(), path.name
    (tmp_path / "images").rename(tmp_path / "elsewhere" / "images")  # then what the config says holds again
    assert main(["evaluate", "../run"]) == 0


def test_a_result_names_the_data_that_it_is_of(tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("images", "others"):
        draw_pictures(tmp_path / name)
    Image.new("L", (16, 16), 100).save("others/l/0.png")
    Path("tiny.toml").write_text(to_toml(tiny))
    words = ["--data.name", "folder", "--data.root", "images", "--data.base-classes", "0", "--data.novel-classes", "4"]
    assert main(["train", "tiny.toml", *words, "--out", "run", "--quiet"]) == 0
    data = {}
    for root in ("images", "others"):
        assert main(["evaluate", "run", "--compare", "ncm", "--root", root, "--out", f"{root}.json"]) == 0
        result = json.loads(Path(f"{root}.json").read_text())
        assert result["config"]["data"]["root"] == root
        data[root] = result["data"]
    assert data["images"] != data["others"]


def test_the_variable_says_where_the_data_are_when_they_have_moved(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_pictures(tmp_path / "images")
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    monkeypatch.setenv("KCCIOL_DATA", str(tmp_path / "images"))
    words = ["--data.name", "folder", "--data.base-classes", "0", "--data.novel-classes", "4"]
    assert main(["train", str(tmp_path / "tiny.toml"), *words, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    (tmp_path / "images").rename(tmp_path / "moved")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    monkeypatch.setenv("KCCIOL_DATA", str(tmp_path / "moved"))
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_help_shows_the_settings_of_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, classes in (([str(run), "--help"], "2 4"), (["--help"], "10 50 100 150 200")):
        with pytest.raises(SystemExit):
            main(["evaluate", *words])
        said = capsys.readouterr().out.replace("│", " ")
        assert f"(default: {classes})" in " ".join(said.split())


def test_train_again_and_resume(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(run), "--quiet"]) == 2
    assert "--resume" in capsys.readouterr().err
    before = (run / "checkpoint.safetensors").read_bytes()
    assert main(["train", str(run), "--resume", "--quiet"]) == 0  # it was done already
    assert (run / "checkpoint.safetensors").read_bytes() == before


def test_data_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    assert "omniglot" in capsys.readouterr().out
    assert main(["data", "check", "glyphs", "--base-classes", "5", "--novel-classes", "3"]) == 0
    assert "5 classes" in capsys.readouterr().out
    sheet = tmp_path / "sheet.png"
    words = [
        "data",
        "show",
        "glyphs",
        "--base-classes",
        "5",
        "--novel-classes",
        "3",
        "--rows",
        "4",
        "--out",
        str(sheet),
    ]
    assert main(words) == 0
    with Image.open(sheet) as picture:
        assert picture.size[1] > 4 * 28


BAD = [
    (["nonsense"], "no command 'nonsense'"),
    (["train", "nonsense"], "no preset 'nonsense'"),
    (["train", "none.toml"], "There is no config file none.toml"),
    (["train", "quickstart", "--mask.delta", "2"], "mask.delta is 2"),
    (["train", "quickstart", "--seed", "-1"], "seed is -1"),
    (["train", "quickstart", "--meta.clamp", "inf"], "meta.clamp is inf"),
    (["train", "quickstart", "--phase2.gamma", "nan"], "phase2.gamma is nan"),
    (["train", "quickstart", "--data.size", "1000000"], "data.size is 1000000"),
    (["train", "--out", "x", "quickstart"], "The preset comes first"),
    (["train", "quickstart", "--start", "{run}/checkpoint.safetensors", "--out", "{tmp}/x"], "lies within phase 3"),
    (["train", "quickstart", "--start", "{run}", "--out", "{tmp}/x"], "is a folder"),
    (["train", "{run}", "--resume", "--start", "{run}/phase1.safetensors"], "leave --start out"),
    (["train", "{run}", "--resume", "--phase1.steps", "9"], "phase1.steps = 7, now it is 9"),
    (["train", "{run}", "--phase1.steps", "0", "--phase2.steps", "0", "--phase3.steps", "0"], "nothing to train"),
    (["quickstart", "--evaluation.classes", "500", "--out", "{tmp}/x"], "at most 100"),
    (["train", "quickstart", "--phase1.steps", "-5"], "steps is -5"),
    (["train", "omniglot", "--data.root", "nowhere"], "nowhere"),
    (["train", "quickstart", "--trajectory.support", "30", "--out", "{tmp}/x"], "needs 32 of each class"),
    (["train", "quickstart", "--net.strides", "2", "2", "2", "2", "2", "--out", "{tmp}/x"], "shrink images"),
    (["train", "quickstart", "--start", "none.safetensors", "--out", "{tmp}/x"], "no checkpoint none.safetensors"),
    (["evaluate", "nowhere"], "no run folder and no file nowhere"),
    (["evaluate", "{run}", "--phase", "7"], "no representation of phase 7: choose 1 and 2 and 3"),
    (["evaluate", "{run}", "--learner", "er", "--set", "=3"], "'=3' is not a setting"),
    (["evaluate", "{run}", "--learner", "er", "--set", "slots=5", "slots=6"], "slots is set twice"),
    (["data", "list", "nosuch"], "no data set 'nosuch'"),
    (["evaluate", "{run}/phase3.safetensors", "--phase", "1"], "--phase chooses in a run folder"),
    (["evaluate", "--classes", "2", "{run}"], "The run comes first"),
    (["evaluate", "{run}", "--out", "{run}/phase1.safetensors"], "ends in .json"),
    (["evaluate", "{run}", "--out", "{tmp}/none/x.json"], "there is no folder"),
    (["evaluate", "{run}", "--rates", "inf"], "--rates is (inf,)"),
    (["bench", "step", "--steps", "0"], "--steps is 0"),
    (["bench", "step", "--out", "{tmp}/none/x.json"], "there is no folder"),
    (["data", "check"], "needs the name of a data set"),
    (["evaluate", "{run}", "--classes", "9"], "9 classes"),
    (["evaluate", "{run}", "--train-samples", "30"], "33 of each class"),
    (["evaluate", "{run}", "--split", "validation"], "no validation classes"),
    (["data", "get", "folder"], "cannot be downloaded"),
    (["data", "check", "nothing"], "no data set 'nothing'"),
    (["data", "check", "omniglot", "--root", "{tmp}"], "data get omniglot"),
    (["data", "show", "glyphs", "--split", "validation"], "no validation classes"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_bad_input_is_one_sentence_and_code_2(
    words: list[str], says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(p.name for p in run.iterdir())
    assert main([word.format(run=run, tmp=tmp_path) for word in words]) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert error.count("\n") == 0
    assert error.startswith("kcciol: ")
    assert sorted(p.name for p in run.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["train", "quickstart", "--phase1.stepps", "3"], ["bench", "nothing"], ["data", "eat"]]
)
def test_unknown_flags_and_actions_are_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kcciol: ")
    assert said.err.count("\n") == 1
    assert words[2 if words[0] == "train" else 1] in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data", "check", "glyphs", "--size", "nan"], "--size is 'nan', but must be a whole number"),
        (["train", "quickstart", "--phase1.alpha", "x"], "--phase1.alpha is 'x', but must be a number"),
        (["train", "quickstart", "--phase1.step", "3"], "perhaps you meant --phase1.steps or --phase2.steps"),
        (["list", "--x"], "'what' needs a value"),
        (
            ["data", "check", "glyphs", "--name", "folder"],
            "--name is 'folder', but the data set is named without",
        ),
    ],
)
def test_what_is_no_value_is_a_sentence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_the_untrained_network_is_of_no_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = Path(__file__).parent / "data" / "today" / "trained"
    assert main(["evaluate", str(trained), "--untrained", "--phase", "1", "--out", str(tmp_path / "a.json")]) == 2
    assert "leave --phase out" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_terminal_of_no_columns_shows_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in ("0", "10", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["list", "encoders"]) == 0
        assert "A representation from a file" in capsys.readouterr().out


def test_bench_recipes_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "recipes", "--steps", "2", "--device", "cpu", "--out", str(tmp_path / "b.json")]
    assert main(words) == 0
    (name, found), *_ = json.loads((tmp_path / "b.json").read_text())["presets"].items()
    assert (name, found["steps"]) == ("quickstart", [p.steps for p in preset("quickstart").phases])
    assert found["recipe_s"] == pytest.approx(sum(map(operator.mul, found["steps"], found["ms"])) / 1000)
    own = sine.ours(sine.TINY.config)
    for name, config in (("sine-literal", sine.TINY.config), ("sine", own), ("mnist-gan", gan.TINY)):
        monkeypatch.setattr("kcciol.paper.bench.recipes.member", lambda values, config=config: config)
        assert main([*words, "--preset", name]) == 0
        found = json.loads((tmp_path / "b.json").read_text())["presets"][name]
        assert len(found["ms"]) == len(found["steps"]) == sum(p.steps > 0 for p in config.phases)
        assert found["members"] == 2 * {"sine-literal": 4, "sine": 2, "mnist-gan": 2}[name]


def test_bench_step_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "step", "--steps", "20", "--device", "cpu", "--out", str(tmp_path / "b.json")]) == 0
    result = json.loads((tmp_path / "b.json").read_text())
    assert all(result[f"phase{i}_ms"] > 0 for i in (1, 2, 3))
    assert result["naive_ms"] > result["phase1_ms"]


def test_what_is_said_after_training_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "quickstart", *TINY_QUICKSTART, "--evaluation.classes", "2", "50", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    command = said.split("`kcciol ")[1].split("`")[0].split()
    assert command[-2:] == ["--classes", "2"]
    assert main(command) == 0


def test_what_the_system_refuses_is_a_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setitem(LISTS, "learners", full)
    assert main(["list", "learners"]) == 2
    assert capsys.readouterr().err == "kcciol: A file could not be written or read (File too large).\n"


def test_a_full_disk_names_what_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    with pytest.raises(OSError, match="No space left on device") as caught, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")  # a write names no file
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match=r"^a library's words$"), replacing(path):
        raise OSError("a library's words")
    assert not list(tmp_path.iterdir())


def test_slips_in_python_are_named(run: Path) -> None:
    config = preset("quickstart")
    data: Any = kcciol.load_data(config.data)
    features: Any = kcciol.load(run / "phase3.safetensors").features
    slips: dict[str, Callable[[], object]] = {
        "base is a Splits, but must be a ClassSet, such as data.base": lambda: kcciol.train(config, data, "unused"),
        "config is a str, but must be a DataConfig, such as config.data": lambda: kcciol.load_data("glyphs"),  # type: ignore[arg-type]
        "config is a Config, but must be a EvaluationConfig": lambda: kcciol.evaluate(data, {}, config),  # type: ignore[arg-type]
        "must be a tensor or an array of bytes .* not the file name 'a.png'": lambda: features("a.png"),
        "not a list": lambda: features([run / "a.png", "b.png"]),
        "not a Image": lambda: features(Image.new("RGB", (16, 16))),
    }
    for message, call in slips.items():
        with pytest.raises(kcciol.UserError, match=message):
            call()


def test_the_list_of_learners_marks_those_that_need_a_whole_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "learners"]) == 0
    assert "not for kcciol.OnlineLearner: podnet." in " ".join(capsys.readouterr().out.split())


EARLY = """
import importlib.abc, os, signal, sys
from kcciol.__main__ import main
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ["WHEN"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["kcciol.cli", "tyro", "kcciol.learners", "torch", "numpy"])
def test_ctrl_c_while_a_command_is_loaded_is_a_plain_end(module: str, run: Path) -> None:
    words = [sys.executable, "-c", EARLY, "evaluate", str(run), "--trajectories", "2"]
    found = subprocess.run(words, env=os.environ | {"WHEN": module}, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "kcciol: interrupted\n")


def test_the_command_begins_where_ctrl_c_is_plain() -> None:
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert settings["project"]["scripts"] == {"kcciol": "kcciol.__main__:main"}


def test_compare_says_which_learner_is_measured_and_what_its_rule_favours(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run), "--trajectories", "2", "--out", str(run / "c.json"), "--compare", "ncm", "slda"]
    favours = "favours learners that fit the learned images closely: compare by --rule base too."
    assert main(words) == 0
    said = capsys.readouterr()
    assert [line for line in said.err.splitlines() if line.endswith("...")] == ["1 of 2, ncm ...", "2 of 2, slda ..."]
    assert "2 of 2, slda, 4 classes: " in said.err
    assert favours in said.out
    assert main([*words, "--rule", "holdout"]) == 0
    assert favours not in capsys.readouterr().out
    (run / "c.json").unlink()


def test_a_class_that_is_base_and_novel_is_refused_before_training(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_pictures(tmp_path / "images" / "base")
    draw_pictures(tmp_path / "images" / "novel")
    for name in "abcdefghij":
        shutil.rmtree(tmp_path / "images" / "novel" / name)
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    folder = ["--data.name", "folder", "--data.root", str(tmp_path / "images"), "--data.base-classes", "0"]
    words = ["train", str(tmp_path / "tiny.toml"), *folder, "--data.novel-classes", "0"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "The class 'k' is a base class and a novel one" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


FLAGS = [
    (["train", "quickstart", "--data.train-samples", "-1"], "--data.train-samples is -1"),
    (["train", "quickstart", "--data.name", "folder", "--data.root", "none"], "set --data.root to a folder"),
    (["evaluate", "{run}", "--train-samples", "0"], "--train-samples is 0"),
    (["evaluate", "{run}", "--train-samples", "30"], "evaluation (--train-samples + --test-samples) needs 33"),
    (["evaluate", "{run}", "--classes", "9"], "--classes asks for trajectories of 9 classes"),
    (["data", "check", "glyphs", "--novel-classes", "0"], "--novel-classes is 0"),
    (["data", "check", "folder", "--root", "none"], "set --root to a folder"),
    (["quickstart", "--phase1.alpha", "-1"], "--phase1.alpha is -1"),
    (["train", "quickstart", "--seed", "-1"], "--seed is -1"),
    (["train", "quickstart", "--data.name", "net.hidden"], "no data set 'net.hidden'"),
]


@pytest.mark.parametrize(("words", "says"), FLAGS)
def test_messages_name_the_flags_that_were_typed(
    words: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(run=run) for word in words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert not re.search(r"(?<!--)\b(data|evaluation|phase1)\.[a-z]", said)


def test_what_is_wrong_in_a_file_is_named_as_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").write_text("[data]\ntrain_samples = -1\n")
    assert main(["data", "list"]) == main(["train", "quickstart", "--data.size", "1"]) - 2 == 0
    assert main(["train", str(tmp_path / "a.toml")]) == 2
    assert "kcciol: data.train_samples is -1" in capsys.readouterr().err


HELP = [["train", "quickstart"], ["evaluate"], ["reproduce"], ["data"], ["bench"], ["report"], ["quickstart"], ["list"]]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", HELP, ids=operator.itemgetter(0))
def test_help_fits_the_terminal(
    words: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is wider, and none but the last of a text ends long before the edge, as by a line break of the source."""
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for line, following in itertools.pairwise(lines):
        text, more = line.strip("│ "), following.strip("│")
        goes_on = more.startswith(" " * 10) and not text.startswith("--") and not text.endswith(")")
        if goes_on and line.startswith("│ " + " " * 10):
            assert len(line.rstrip("│ ")) + len(more.split()[0]) + 3 >= width, line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_a_terminal_has_no_letters_for_is_spelt_out(encoding: str, tmp_path: Path) -> None:
    """Dashes, arrows and signs of tables, where the language is plain English or Windows has its own letters."""
    script = "import kcciol.cli, kcciol.cli.terminal as t; kcciol.cli.main(['--version']); t.out.print('5 ± 1 ↕ †')"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    assert (
        found.stdout.decode(encoding)
        .splitlines()[1]
        .endswith("\\u2195 " + ("†" if encoding == "cp1252" else "\\u2020"))
    )


def test_one_data_set_is_listed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "mnist"]) == 0
    said = capsys.readouterr().out
    assert "mnist" in said
    assert "omniglot" not in said


def test_a_reader_who_leaves_is_no_fault() -> None:
    for words in (["list", "learners"], ["train", "--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        found = subprocess.run([sys.executable, "-m", "kcciol", *words], stdout=writing, stderr=-1, check=False)
        os.close(writing)
        assert (found.returncode, found.stderr) == (141, b"")


def test_help_ends_in_the_narrowest_terminal() -> None:
    words = [sys.executable, "-m", "kcciol", "evaluate", "--help"]
    found = subprocess.run(words, env=os.environ | {"COLUMNS": "3"}, capture_output=True, timeout=60, check=False)
    assert found.returncode == 0


def test_the_command_that_training_recommends_works(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(to_toml(tiny))
    for number, classes in enumerate((["100"], ["3", "100"])):
        words = ["train", "tiny.toml", "--evaluation.classes", *classes, "--quiet", "--out", f"run{number}"]
        assert main(words) == 0
        said = capsys.readouterr().out
        found = re.search("`kcciol (.*)`", said)
        assert found is not None
        assert main(found[1].split()) == 0


def test_lists_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["list", "learners"], ["list", "representations"], ["data", "list"], ["train", "--help"]):
        found = subprocess.run(
            [sys.executable, "-m", "kcciol", *words],
            env=os.environ | {"COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=True,
        )
        longest = max(found.stdout.splitlines(), key=len)
        assert len(longest) <= 80 or longest.startswith(("usage", "Several GPUs"))
        assert "…" not in found.stdout
