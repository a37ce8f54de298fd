"""The numbers under results/ are those that were committed, wherever a file has moved and whatever it is called now.

That tables and cells agree with each other is held by tests/paper/test_committed.py, that README and docs say what
is in results/ by tests/test_docs.py.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.pins.pinned import FOLDER, WRITES

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = FOLDER / "results.json"
LOGS = {"cuda-tests.json", "quickstart.json"}  # each run writes them anew; test_quickstart.py holds the table of one


def numbers(value: Any) -> Iterator[str]:
    """Every number in the order of sorted keys, keys that are numbers too, and images, which are packed as text."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key == "zlib, base64":
                yield str(value[key])
                continue
            if _number(key):
                yield f"{key}:"
            yield from numbers(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


def _number(key: str) -> bool:
    try:
        float(key)
    except ValueError:
        return False
    return True


def digest(value: Any) -> str:
    return hashlib.sha256("\n".join(numbers(value)).encode()).hexdigest()[:20]


def there() -> list[list[str]]:
    """Digest and name of each file, sorted."""
    paths = [path for path in RESULTS.rglob("*.json") if path.name not in LOGS]
    return sorted(
        [digest(json.loads(path.read_text(encoding="utf-8"))), path.relative_to(RESULTS).as_posix()] for path in paths
    )


def test_every_number_that_was_committed_is_there() -> None:
    found = there()
    if WRITES:
        COMMITTED.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")
    kept = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert len(kept) > 200
    missing = Counter(one for one, _ in kept) - Counter(one for one, _ in found)
    # the names are those of then: they say where to look
    assert not missing, f"other numbers than those once committed as: {[name for one, name in kept if one in missing]}"


def test_a_digest_is_of_the_numbers_alone() -> None:
    value = {"a": [1, 2.5, {"10": None}], "mark": "x", "yes": True}
    assert digest(value) == digest({"mark": "y", "yes": False, "a": [1, 2.5, {"10": "z"}]})
    others = [{"a": [1, 2.5000001, {"10": None}]}, {"a": [2.5, 1, {"10": None}]}, {"a": [1, 2.5, {"11": None}]}]
    assert digest(value) not in {digest(other) for other in others}
