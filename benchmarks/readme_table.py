"""Put the tables of `results/` between the markers in the README and the docs: numbers are read, never typed. Also draw
the README's picture and write results/report.html.

python benchmarks/readme_table.py            write them
python benchmarks/readme_table.py --check    say whether they are up to date (exit code 1 when not)
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kcciol.config import preset, presets
from kcciol.evaluation.metrics import summarize
from kcciol.report import write
from kcciol.report.pairs import SEEDS
from kcciol.report.read import read
from kcciol.report.summary import digest, markdown, picture
from kcciol.values import to_dict

ROOT = Path(__file__).parents[1]
PLACES = ("README.md", "docs/protocol.md", "docs/architecture.md", "docs/methods.md", "docs/reproduce.md")


def summary() -> str:
    """The method beside the paper's numbers."""
    return markdown(read(ROOT / "results"))


def phases() -> str:
    """What each phase adds, beside the control."""
    return _rows(_read("omniglot.json"), ["omniglot-phase1", "omniglot-phase2", "omniglot", "omniglot-control"])


def readings() -> str:
    """Three readings of the paper."""
    return _rows(_read("omniglot.json"), ["omniglot-literal", "omniglot-paper", "omniglot", "paper"])


def adds() -> str:
    """Accuracy of `omniglot` minus its control's, on the same trajectories; the interval is over the seeds where there
    are enough."""
    data = _read("omniglot.json")
    lines = ["| classes | `omniglot` minus `omniglot-control` | seed by seed |", "| --- | --- | --- |"]
    for n, d in data["consolidation adds"].items():
        by_seed = ", ".join(f"{value:+.2f}" for value in d["by_seed"])
        over_seeds = summarize(torch.tensor(d["by_seed"])).ci95 if len(d["by_seed"]) >= SEEDS else None
        lines.append(f"| {n} | {d['mean']:+.2f} ± {over_seeds or d['ci95']:.2f} | {by_seed} |")
    return "\n".join(lines)


def settings() -> str:
    """Candidates on base classes kept out of training, at the end of each one's last phase."""
    data = _read("omniglot-settings.json")
    first = next(iter(next(iter(data.values()))["phases"].values()))
    head = ["candidate", *(f"{n} classes, `{rule}`" for n in first["stream"] for rule in first)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, candidate in data.items():
        last = candidate["phases"][max(candidate["phases"])]
        cells = [f"{last[rule][n]['mean']:.1f} ± {last[rule][n]['ci95']:.1f}" for n in last["stream"] for rule in last]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def _rows(data: dict[str, Any], columns: list[str]) -> str:
    head = ["classes", *(f"`{c}`" if c != "paper" else "paper, printed" for c in columns)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for n, row in data["rows"].items():
        cells = [
            f"{row[c]['mean']:.1f} ± {row[c]['ci95']:.1f}" if "ci95" in row[c] else f"{row[c]['mean']:.1f}"
            for c in columns
        ]
        lines.append("| " + " | ".join([n, *cells]) + " |")
    seeds = len(data["seeds"])
    ours = row[columns[-1] if columns[-1] != "paper" else columns[-2]]
    note = f"± is the 95 % interval over {ours['n']} trajectories of {seeds} trained representations; "
    rules = sorted({rate["rule"] for c in columns if c != "paper" for rate in row[c]["rate"]})
    note = f"({note}rate chosen by the rule {', '.join(rules)}; held-out images.)"
    old = [f"`{c}`: {changes}" for c in columns if c != "paper" and (changes := since(c, data["settings"][c]))]
    if old:
        note += "\n\nMeasured before these settings of the presets were changed (measured with -> now): "
        note += "; ".join(old) + "."
    return "\n".join([*lines, "", note])


def since(column: str, measured: dict[str, Any]) -> str:
    """The settings in which a column's runs differ from its preset of today."""
    now = to_dict(preset(next(p for p in sorted(presets(), key=len, reverse=True) if column.startswith(p))))
    changes = []
    for section in ("data", "net", "trajectory", "meta", "mask", "phase1", "phase2", "phase3", "evaluation"):
        for key, value in now[section].items():
            ours = column.endswith("-control") and key in ("gamma", "lam")
            known = key in measured[section]  # a setting that came later had its default before
            if key not in ("root", "seed") and not ours and known and measured[section][key] != value:
                changes.append(f"{section}.{key} {measured[section][key]} -> {value}")
    return ", ".join(changes)


def speed() -> str:
    """`kcciol bench step` on a GPU."""
    b = _read("bench-step.json")
    lines = [
        f"| {b['record']['hardware']['gpu']}, torch {b['record']['versions']['torch']} | ms a step | TFLOP/s |",
        "| --- | --- | --- |",
        f"| the whole network in every inner step, autograd, eager (phase 1) | {b['naive_ms']:.1f} | |",
        f"| ours, eager (phase 1) | {b['phase1_eager_ms']:.2f} | |",
    ]
    for i in (1, 2, 3):
        lines.append(f"| ours, one CUDA graph, phase {i} | **{b[f'phase{i}_ms']:.2f}** | {b[f'phase{i}_tflops']:.0f} |")
    for i in (1, 2, 3):
        key = "large" if i == 1 else f"large_phase{i}"
        lines.append(f"| preset `omniglot` (104 images), phase {i} | {b[key + '_ms']:.2f} | {b[key + '_tflops']:.0f} |")
    text = (
        f"Phase 1 is {b['times_faster_phase1']:.0f} times faster than the plain way; {b['peak_gib']:.1f} GiB at most."
    )
    return "\n".join([*lines, "", text])


def recipes() -> str:
    """`kcciol bench recipes` on a GPU."""
    b = _read("bench-recipes.json")
    lines = ["| preset | trained together | steps | ms a step, by phase | all steps, s |", "| --- " * 5 + "|"]
    for name, one in b["presets"].items():
        each = ", ".join(f"{ms:.2f}" for ms in one["ms"])
        lines.append(f"| `{name}` | {one['members']} | {sum(one['steps']):,} | {each} | {one['recipe_s']:.0f} |")
    about = b["record"]
    return "\n".join([*lines, "", f"({about['hardware']['gpu']}, torch {about['versions']['torch']}.)"])


def quickstart() -> str:
    """The table that `kcciol quickstart` prints."""
    data = _read("quickstart.json")
    names = list(data["columns"])
    lines = ["| novel classes | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for n in next(iter(data["columns"].values())):
        cells = [data["columns"][name][n]["test"] for name in names]
        lines.append(f"| {n} | " + " | ".join(f"{c['mean']:.1f} ± {c['ci95']:.1f}" for c in cells) + " |")
    hardware = data["record"]["hardware"]
    took = f"({data['seconds']['total']:.0f} s on {hardware['cpu_threads']} CPU cores, "
    return "\n".join([*lines, "", took + f"{data['peak_memory_gib']:.1f} GiB of memory at most.)"])


def slower(cell: dict[str, Any] | None, size: dict[str, Any]) -> str:
    """A peer beside ours."""
    if cell is None:
        return ""
    times = cell["times_slower_than_ours"]
    cut = f" ({cell['n']:,} examples)" if cell["n"] < size["classes"] * size["samples"] else ""
    return f"{times:,.0f} times slower{cut}" if times > 20 else f"{times:.1f} times slower{cut}"


def costs() -> str:
    """What an example costs a learner, and its peers."""
    data = _read("bench-learners.json")
    peers = [key for key in data if key.endswith("at a time")]
    own = ("alone, ms", "with its class, ms", "all classes known, ms")
    lines = ["| " + " | ".join(["learner", *own, *peers]) + " |", "| --- " * (len(own) + len(peers) + 1) + "|"]
    for name, cell in data["ours"].items():
        shown = [slower(data[peer].get(name), data["config"]) for peer in peers]
        asked = f" ({cell['with_an_answer_ms']:.0f})" if "with_an_answer_ms" in cell else ""
        known = f"{cell['all_classes_known_ms']:.2f}" if "all_classes_known_ms" in cell else ""
        ours = [f"{cell['ms']:.2f}{asked}", f"{cell['with_its_class_ms']:.2f}", known]
        lines.append("| " + " | ".join([f"`{name}`", *ours, *shown]) + " |")
    size, hardware = data["config"], data["record"]["hardware"]
    versions = ", ".join(f"{peer.split(',')[0]} {data[peer]['version']}" for peer in peers[1:])
    note = f"({size['width']} features, {size['classes']} classes, {size['samples']} examples of each, one pass, or as "
    note += f"many examples as it says in {size['seconds']:.0f} s; "
    note += f"{hardware['torch_threads']} CPU thread; {versions}, torch {data['record']['versions']['torch']}.)"
    return "\n".join([*lines, "", note])


BLOCKS: dict[str, Callable[[], str]] = {
    "summary": summary,
    "phases": phases,
    "readings": readings,
    "adds": adds,
    "settings": settings,
    "speed": speed,
    "recipes": recipes,
    "quickstart": quickstart,
    "costs": costs,
}


def _read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))
    return value


def filled(text: str) -> str:
    """The text with each marked block made anew."""

    def make(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{BLOCKS[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", make, text, flags=re.DOTALL)


def main() -> int:
    stale = 0
    for name in PLACES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            stale += 1
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
            print(f"{name}: {'out of date' if '--check' in sys.argv else 'written'}")
    drawn, results = ROOT / "docs" / "results.png", read(ROOT / "results")
    if not drawn.exists() or digest(results).encode() not in drawn.read_bytes():
        stale += 1
        if "--check" not in sys.argv:
            picture(results, drawn)
        print(f"docs/results.png: {'out of date' if '--check' in sys.argv else 'drawn'}")
    with tempfile.TemporaryDirectory() as folder:
        made, new_page = ROOT / "results" / "report.html", Path(folder) / "report.html"
        if warnings := write(ROOT / "results", new_page):
            print(*warnings, sep="\n")
            return 1
        if not made.exists() or made.read_bytes() != new_page.read_bytes():
            stale += 1
            if "--check" not in sys.argv:
                write(ROOT / "results", made)
            print(f"results/report.html: {'out of date' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
