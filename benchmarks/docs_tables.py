"""Put the tables of `results/` between the markers in the README and the docs: numbers are read, never typed. Also draw
the README's picture and write results/report.html. Sentences are written by hand; tests/test_claims.py checks them.

python benchmarks/docs_tables.py            write them
python benchmarks/docs_tables.py --check    say whether they are up to date (exit code 1 when not)
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from consolidation_tables import WORTH
from paper_tables import TABLES, markdown_table, read

from kcciol.evaluation.metrics import summarize
from kcciol.numbers import half_width
from kcciol.paper.report import write
from kcciol.paper.report.consolidation import SEEDS
from kcciol.paper.report.read import read as read_results
from kcciol.paper.report.summary import digest, markdown, picture

ROOT = Path(__file__).parents[1]
OWN_SCRIPT = "‡"  # behind what is in results/omniglot.json
PLACES = (
    "README.md",
    "docs/protocol.md",
    "docs/architecture.md",
    "docs/methods.md",
    "docs/reproduce.md",
    "docs/results.md",
    "docs/results-omniglot.md",
    "docs/consolidation.md",
)


def summary() -> str:
    """The method beside the paper's numbers."""
    return markdown(read_results(ROOT / "results"))


def phases() -> str:
    """What each phase adds, beside the control."""
    return _rows(read("omniglot.json"), ["omniglot-phase1", "omniglot-phase2", "omniglot", "omniglot-control"])


def readings() -> str:
    """Three readings of the paper."""
    return _rows(read("omniglot.json"), ["omniglot-literal", "omniglot-paper", "omniglot", "paper"])


def adds() -> str:
    """Accuracy of `omniglot` minus its control's, on the same trajectories; the interval is over the seeds where there
    are enough."""
    rows = {}
    for n, d in read("omniglot.json")["consolidation adds"].items():
        over_seeds = summarize(torch.tensor(d["by_seed"])).ci95 if len(d["by_seed"]) >= SEEDS else None
        by_seed = ", ".join(f"{value:+.2f}" for value in d["by_seed"])
        rows[n] = [f"{d['mean']:+.2f}{half_width(over_seeds or d['ci95'], 2)}{OWN_SCRIPT}", by_seed]
    return markdown_table("classes", ["`omniglot` minus `omniglot-control`", "seed by seed"], rows)


def settings() -> str:
    """Candidates on base classes kept out of training, at the end of each one's last phase."""
    data = read("omniglot-settings.json")
    ends = {name: candidate["phases"][max(candidate["phases"])] for name, candidate in data.items()}
    first = next(iter(ends.values()))
    places = [(n, rule) for n in first["stream"] for rule in first]
    rows = {
        name: [f"{end[rule][n]['mean']:.1f}{half_width(end[rule][n]['ci95'])}" for n, rule in places]
        for name, end in ends.items()
    }
    return markdown_table("candidate", [f"{n} classes, `{rule}`" for n, rule in places], rows)


def _rows(data: dict[str, Any], columns: list[str]) -> str:
    ours = [c for c in columns if c != "paper"]
    rows = {
        n: [f"{row[c]['mean']:.1f}{half_width(row[c].get('ci95'))}{OWN_SCRIPT * (c in ours)}" for c in columns]
        for n, row in data["rows"].items()
    }
    last = next(reversed(data["rows"].values()))
    rules = sorted({rate["rule"] for c in ours for rate in last[c]["rate"]})
    note = (
        f"(± is the 95 % interval over {last[ours[-1]]['n']} trajectories of {len(data['seeds'])} trained "
        f"representations; rate chosen by the rule {', '.join(rules)}; held-out images; {OWN_SCRIPT} "
        f"{data['provenance'][0]}.)"
    )
    heads = [f"`{c}`" if c != "paper" else "paper, printed" for c in columns]
    return "\n".join([markdown_table("classes", heads, rows), "", note])


def speed() -> str:
    """`kcciol bench step` on a GPU."""
    b = read("bench-step.json")
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
    caption = (
        f"(Phase 1: {b['times_faster_phase1']:.0f} times faster than the plain way. Memory: {b['peak_gib']:.1f} GiB.)"
    )
    return "\n".join([*lines, "", caption])


def recipes() -> str:
    """`kcciol bench recipes` on a GPU."""
    b = read("bench-recipes.json")
    lines = ["| preset | trained together | steps | ms a step, by phase | all steps, s |", "| --- " * 5 + "|"]
    for name, one in b["presets"].items():
        each = ", ".join(f"{ms:.2f}" for ms in one["ms"])
        lines.append(f"| `{name}` | {one['members']} | {sum(one['steps']):,} | {each} | {one['recipe_s']:.0f} |")
    about = b["record"]
    return "\n".join([*lines, "", f"({about['hardware']['gpu']}, torch {about['versions']['torch']}.)"])


def quickstart() -> str:
    """The table that `kcciol quickstart` prints."""
    data = read("quickstart.json")
    names, cpu = list(data["columns"]), data["record"]["hardware"]["cpu_threads"]
    tests = {n: [data["columns"][name][n]["test"] for name in names] for n in data["columns"][names[0]]}
    rows = {n: [f"{c['mean']:.1f}{half_width(c['ci95'])}" for c in cells] for n, cells in tests.items()}
    took = (
        f"({data['seconds']['total']:.0f} s on {cpu} CPU cores, {data['peak_memory_gib']:.1f} GiB of memory at most.)"
    )
    return "\n".join([markdown_table("novel classes", names, rows), "", took])


def slower(cell: dict[str, Any] | None, size: dict[str, Any]) -> str:
    """A peer beside ours."""
    if cell is None:
        return ""
    times = cell["times_slower_than_ours"]
    cut = f" ({cell['n']:,} examples)" if cell["n"] < size["classes"] * size["samples"] else ""
    return f"{times:,.0f} times slower{cut}" if times > 20 else f"{times:.1f} times slower{cut}"


def costs() -> str:
    """What an example costs a learner, and its peers."""
    data = read("bench-learners.json")
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


def growth() -> str:
    """What one example and one question cost with few classes and with many."""
    data = read("bench-growth.json")
    first = next(iter(data["learners"].values()))
    few, *_, many = first
    sizes_told = (f"{int(few):,}", f"{int(many):,}")
    heads = [f"learn one, {n} classes, µs" for n in sizes_told]
    heads += [f"with a question between, {n}" for n in sizes_told]
    heads += [f"predict one, {sizes_told[1]} classes, µs", "as products", "as its own products", "first after a learn"]
    rows = {}
    for name, sizes in data["learners"].items():
        last = sizes[many]
        learn = [f"{sizes[n]['us'][how]:,.0f}" for how in ("learn_alone", "learn") for n in (few, many)]
        asked = last["us"]["predict"]
        times = [f"{last[key]['predict']:.1f}" for key in ("times_product", "times_product_head")]
        rows[f"`{name}`"] = [*learn, f"{asked:,.0f}", *times, f"{last['us']['predict_first'] / asked:.1f} times"]
    hardware, config = data["record"]["hardware"], data["config"]
    note = (
        f"({config['width']} features, {hardware['torch_threads']} CPU thread, torch "
        f"{data['record']['versions']['torch']}. A product is one float32 matrix of all classes times one example, of "
        "that many features or of as many as the head itself has; both in the same run.)"
    )
    return "\n".join([markdown_table("learner", heads, rows), "", note])


BLOCKS: dict[str, Callable[[], str]] = {
    **TABLES,
    **WORTH,
    "summary": summary,
    "phases": phases,
    "readings": readings,
    "adds": adds,
    "settings": settings,
    "speed": speed,
    "recipes": recipes,
    "quickstart": quickstart,
    "costs": costs,
    "growth": growth,
}


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
    drawn, results = ROOT / "docs" / "results.png", read_results(ROOT / "results")
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
