"""Many threads that learn and ask at once."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.errors import UserError
from kcciol.learner import OnlineLearner
from kcciol.learners import LEARNERS, learner_type
from kcciol.learners.base import Labels, Learner
from kcciol.learners.blocks import ClassSnapshot
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head
from kcciol.learners.online import Online
from kcciol.learners.snapshot import Snapshot
from kcciol.learners.statistics import COUNT
from kcciol.testing.case import equal
from tests.learners.battery import SMALL, sensible

NAMES = [name for name in LEARNERS if sensible(name, "head")]
LASTING = ["online", "approx-iid", "ncm", "gaussian", "slda", "ridge"]
EXAMPLES = {"ncm": 600, "online": 500, "gaussian": 300, "slda": 300, "ridge": 300}  # for each thread
EXAMPLES |= {"approx-iid": 300, "ewc": 300, "er": 200, "gss": 60, "gss-iqp": 50, "merlin": 25}
WIDTH, THREADS = 6, 8


def make(name: str) -> OnlineLearner:
    fields = LEARNERS[name].settings_type.__dataclass_fields__
    return OnlineLearner(name, WIDTH, {key: value for key, value in SMALL.items() if key in fields})


def stream(thread: int, count: int) -> list[tuple[torch.Tensor, str]]:
    """Examples of two classes that all threads have, and of one that is this thread's own."""
    random = torch.Generator().manual_seed(thread)
    labels = ["one", "two", f"own {thread}"]
    centres = torch.eye(WIDTH)[[0, 1, 2 + thread % (WIDTH - 2)]]
    return [(centres[i % 3] + 0.1 * torch.rand(WIDTH, generator=random), labels[i % 3]) for i in range(count)]


def at_once(work: Callable[[int], None], readers: Callable[[threading.Event], int]) -> int:
    """Work in many threads and read in two; whatever goes wrong in one is raised here. How often was read."""
    over, usual = threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet in the middle of things
    with ThreadPoolExecutor(THREADS + 2) as pool:
        reading = [pool.submit(readers, over) for _ in range(2)]
        working = [pool.submit(work, thread) for thread in range(THREADS)]
        try:
            for done in working:
                done.result(120)
        finally:
            over.set()
            sys.setswitchinterval(usual)
        return sum(done.result(120) for done in reading)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_and_only_what_is_known_is_answered(name: str) -> None:
    count = EXAMPLES.get(name, 100)
    learner = make(name).learn_one(torch.ones(WIDTH), "one")
    everything = [stream(thread, count) for thread in range(THREADS)]
    possible = {label for part in everything for _, label in part}

    def learn(thread: int) -> None:
        for number, (x, label) in enumerate(everything[thread]):
            if number % 100 == 99:
                learner.learn_many(x[None], [label])
            else:
                learner.learn_one(x, label)
        assert set(learner.classes_) >= {"one", "two", f"own {thread}"}

    def ask(over: threading.Event) -> int:
        asked = 0
        while not over.is_set() or not asked:
            assert learner.predict_one(everything[0][asked % 3][0]) in possible
            assert set(learner.scores_one(torch.ones(WIDTH))) <= possible
            assert set(learner.predict_many(torch.eye(WIDTH))) <= possible
            asked += 1
        return asked

    assert at_once(learn, ask) > 0
    assert learner.learner.steps == 1 + THREADS * count
    assert set(learner.classes_) == possible
    assert len(learner.classes_) == len(possible)
    if not LEARNERS[name].card.order_free:
        return
    serial = make(name).learn_one(torch.ones(WIDTH), "one")
    for part in everything:
        for x, label in part:
            serial.learn_one(x, label)
    expected = {label: sum(label == other for part in everything for _, other in part) for label in possible}
    counts = dict(zip(learner.classes_, learner.learner.rows[COUNT][0].tolist(), strict=False))
    assert counts == expected | {"one": expected["one"] + 1}
    for x in torch.eye(WIDTH):
        assert learner.scores_one(x) == pytest.approx(serial.scores_one(x), rel=1e-3, abs=1e-4)  # sums in float32


@pytest.mark.parametrize("name", LASTING)
def test_who_asks_does_not_wait_for_who_learns(name: str) -> None:
    learner = make(name).learn_many(torch.eye(WIDTH), range(WIDTH))
    learner.predict_one(torch.eye(WIDTH)[3])
    with ThreadPoolExecutor(1) as pool, learner._turn:  # as in the middle of an example
        learner.learn_one(torch.eye(WIDTH)[3], 3)
        assert pool.submit(learner.predict_one, torch.eye(WIDTH)[3]).result(20) == 3
        assert set(pool.submit(learner.scores_one, torch.eye(WIDTH)[3]).result(20)) == set(range(WIDTH))


@pytest.mark.parametrize("name", LASTING)
def test_a_snapshot_never_changes(name: str) -> None:
    learner, examples = make(name), stream(0, 300)
    held = []
    for number, (x, label) in enumerate(examples):
        learner.learn_one(x, f"{label} {number // 100}")
        if number % 7 == 0:
            learner.predict_one(x)
            snapshot = learner.learner.snapshot()
            held.append((snapshot, snapshot.scores(torch.eye(WIDTH)).clone(), snapshot.answers(torch.eye(WIDTH))))
    for snapshot, scores, answers in held:
        assert snapshot.lasting
        assert torch.equal(snapshot.scores(torch.eye(WIDTH)), scores)
        assert snapshot.answers(torch.eye(WIDTH)) == answers


@pytest.mark.parametrize("name", LASTING)
def test_a_snapshot_that_nobody_asked_yet_is_of_its_moment(name: str) -> None:
    """What it derives when it is asked, it derives of what was known then."""
    learner, held = make(name), []
    for number, (x, label) in enumerate(stream(0, 150)):
        learner.learn_one(x, f"{label} {number // 50}")
        if number % 11 == 10:
            held.append((learner.learner.snapshot(), copy.deepcopy(learner.learner)))
    for snapshot, then in held:
        scores = then.scores(torch.eye(WIDTH)[None])[0]
        torch.testing.assert_close(snapshot.scores(torch.eye(WIDTH)), scores, rtol=1e-6, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize("name", LASTING)
def test_a_snapshot_outlives_a_state_that_was_refused(name: str) -> None:
    learner = make(name).learn_many(torch.eye(WIDTH), range(WIDTH))
    snapshot = learner.learner.snapshot()
    scores = snapshot.scores(torch.eye(WIDTH)).clone()
    state = learner.learner.state_dict()
    wide = next(key for key, value in state.items() if value.is_floating_point() and value.ndim > 1)
    with pytest.raises(UserError, match=wide):
        learner.learner.load_state_dict(state | {wide: torch.full_like(state[wide], torch.nan)})
    for _ in range(3):
        learner.learn_one(torch.ones(WIDTH), 0)
    assert torch.equal(snapshot.scores(torch.eye(WIDTH)), scores)


@pytest.mark.parametrize("name", LASTING)
def test_a_state_that_is_loaded_is_learned_on_from_whoever_read_before(name: str) -> None:
    read, alone = make(name).learn_many(torch.eye(WIDTH), range(WIDTH)), make(name)
    for x in torch.eye(WIDTH):
        read.predict_one(x)
        read.learn_one(x, 1)
    other = make(name).learn_many(torch.eye(WIDTH) * 2, range(WIDTH))
    alone.learn_many(torch.eye(WIDTH) * 2, range(WIDTH))
    read.learner.load_state_dict(other.learner.state_dict())
    for _ in range(3):
        read._known = read.learner.snapshot()
        for learner in (read, alone):
            learner.learn_one(torch.ones(WIDTH), 2)
    assert equal(read.learner.state_dict(), alone.learner.state_dict())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_online_learns_the_same_while_others_read(optimizer: str) -> None:
    """Bit by bit."""
    alone, read, kept = (OnlineLearner("online", WIDTH, {"rate": 0.3, "optimizer": optimizer}) for _ in range(3))
    held = []
    for number, (x, label) in enumerate(stream(1, 90)):
        label += str(number // 10)
        for learner in (alone, read, kept):
            if number % 30 == 20:
                learner.learn_many(x.expand(12, WIDTH), [label] * 12)
            elif number % 30 == 25:
                learner.learn_many(x.expand(4, WIDTH), [label, "one", "two", label])
            learner.learn_one(x, label)
        read.predict_one(x)
        if number % 3:
            kept.predict_one(x)
            held.append(kept.learner.snapshot())
    for learner in (read, kept):
        states = alone.learner.state_dict(), learner.learner.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


class TwoSteps(Online):
    """A method of somebody else's, which does more than it derives from."""

    def _learn(self, x: torch.Tensor, y: Labels) -> None:
        super()._learn(x, y)
        self.error_step(x[:, None], self.labels(y)[:, None])


def test_what_derives_from_online_learns_the_same_while_others_read() -> None:
    alone, read = (TwoSteps(Head(WIDTH), GradientSettings(rate=0.3)) for _ in range(2))
    labels: dict[str, int] = {}
    for x, label in stream(1, 60):
        y = np.array([labels.setdefault(label, len(labels))])
        for learner in (alone, read):
            learner.learn(x[None], y)
        read.snapshot().answers(x[None])
    assert equal(alone.state_dict(), read.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_learned_in_inference_mode_is_learned_on_from_outside(name: str) -> None:
    """Images are often encoded in that mode, and their features learned in the same block."""
    alone, inside = make(name), make(name)
    for number, (x, label) in enumerate(stream(0, 40)):
        alone.learn_one(x, label)
        alone.predict_one(x)
        with torch.inference_mode(number % 3 > 0):
            inside.learn_one(1 * x, label)
            inside.predict_one(1 * x)
    assert equal(alone.learner.state_dict(), inside.learner.state_dict())
    with torch.inference_mode():
        twin = make(name)
    twin.learn_one(torch.ones(WIDTH), "a").learn_one(torch.ones(WIDTH), "b")


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_gives_no_class_the_name_of_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(name).learn_one(torch.eye(WIDTH)[0], "a").learn_one(torch.eye(WIDTH)[1], "b")
    for method in ("learn", "observe_class"):
        done = getattr(learner.learner, method)
        for before in (True, False):  # Ctrl-C before it is learned, or just after

            def interrupted(*inputs: Any, before: bool = before, done: Any = done) -> None:
                if not before:
                    done(*inputs)
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(learner.learner, method, interrupted)
                label, x = f"{method} {before}", torch.eye(WIDTH)[2:3]
                with pytest.raises(KeyboardInterrupt):
                    _ = learner.learn_one(x, label) if method == "learn" else learner.learn_many(x, [label])
            assert len(learner.classes_) == learner.learner.classes
    learner.learn_one(torch.eye(WIDTH)[3], "c")
    assert learner.classes_ == ("a", "b", "learn False", "observe_class False", "c")
    assert set(learner.scores_one(torch.ones(WIDTH))) == set(learner.classes_)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_goes_on_by_itself(name: str, duplicate: Callable[[OnlineLearner], OnlineLearner]) -> None:
    one = make(name)
    for x, label in stream(0, 12):
        one.learn_one(x, label)
    one.predict_one(torch.ones(WIDTH))
    two = duplicate(one)
    before = one.scores_one(torch.ones(WIDTH))
    assert two.scores_one(torch.ones(WIDTH)) == before
    for again in (one.classes_[0], "new", one.classes_[1]):
        two.learn_one(torch.ones(WIDTH), again)
        assert one.scores_one(torch.ones(WIDTH)) == before
        one.learn_one(torch.ones(WIDTH), again)
        assert (before := one.scores_one(torch.ones(WIDTH))) == two.scores_one(torch.ones(WIDTH))
    assert equal(one.learner.state_dict(), two.learner.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_made_in_inference_mode_learns_outside_of_it(name: str) -> None:
    one = make(name)
    for x, label in stream(0, 12):
        one.learn_one(x, label)
    written = pickle.dumps(one)
    with torch.inference_mode():
        copies = [copy.deepcopy(one), pickle.loads(written)]
    one.learn_one(torch.ones(WIDTH), "new")
    for two in copies:
        two.learn_one(torch.ones(WIDTH), "new")
        assert two.scores_one(torch.ones(WIDTH)) == one.scores_one(torch.ones(WIDTH))


def test_a_label_is_known_before_it_is_answered() -> None:
    learner = make("ncm").learn_one(torch.zeros(WIDTH), 0)

    def learn(thread: int) -> None:
        for number in range(200):
            learner.learn_one(torch.full((WIDTH,), float(1 + thread + THREADS * number)), f"{thread} {number}")

    def ask(over: threading.Event) -> int:
        asked: Any = 0
        while not over.is_set() or not asked:
            best = learner.predict_one(np.full(WIDTH, 1e5))
            assert best in learner.classes_
            asked += 1
        return int(asked)

    at_once(learn, ask)
    assert len(learner.classes_) == 1 + 200 * THREADS


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("name", ["ncm", "slda", "online"])
def test_where_no_snapshot_can_be_made_none_is_out_of_date(
    name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    learner, other = (make(name).learn_one(torch.eye(WIDTH)[0], "a") for _ in range(2))
    learner.predict_one(torch.eye(WIDTH)[0])
    with monkeypatch.context() as patch:
        patch.setattr(learner.learner, "snapshot", fail)
        with contextlib.suppress(KeyboardInterrupt):
            learner.learn_one(torch.eye(WIDTH)[1], "b")
        if isinstance(error, MemoryError):
            with pytest.raises(UserError, match="not enough memory to answer"):
                learner.predict_one(torch.eye(WIDTH)[1])
    other.learn_one(torch.eye(WIDTH)[1], "b")
    assert learner.scores_one(torch.eye(WIDTH)[1]) == other.scores_one(torch.eye(WIDTH)[1])
    assert learner.predict_one(torch.eye(WIDTH)[1]) == "b"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
@pytest.mark.parametrize("name", ["ncm", "online", "er"])
def test_too_little_memory_for_an_answer_is_a_sentence(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    learner = make(name).learn_one(torch.eye(WIDTH)[0], "a")
    for _ in range(2):  # the first question, and a later one
        with monkeypatch.context() as patch:
            for kind in (Snapshot, ClassSnapshot):
                patch.setattr(kind, "answers", fail)
            with pytest.raises(UserError, match="not enough memory to answer"):
                learner.predict_one(torch.eye(WIDTH)[0])
        assert learner.predict_one(torch.eye(WIDTH)[0]) == "a"


@pytest.mark.parametrize("name", [name for name in NAMES if learner_type(name).end_task is not Learner.end_task])
def test_a_task_ends_whole_or_not_at_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(name)
    for x, label in stream(0, 12):
        learner.learn_one(x, label)
    before = learner.learner.state_dict()
    with monkeypatch.context() as patch:
        done = learner_type(name).end_task

        def interrupted(self: Learner) -> None:
            done(self)
            raise KeyboardInterrupt

        patch.setattr(learner_type(name), "end_task", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.end_task()
    assert equal(learner.learner.state_dict(), before)
    learner.end_task()
    assert not equal(learner.learner.state_dict(), before)


@pytest.mark.parametrize("act", ["save", "copy"])
def test_what_is_saved_or_copied_is_of_one_moment(act: str, tmp_path: Path) -> None:
    """Both wait until whoever learns has done so."""
    learner = make("ncm").learn_one(torch.ones(WIDTH), "a")
    done = threading.Event()

    def do() -> None:
        if act == "save":
            learner.save(tmp_path / "one.safetensors")
        else:
            pickle.dumps(learner)
        done.set()

    with learner._learning():
        thread = threading.Thread(target=do)
        thread.start()
        assert not done.wait(0.2)
    thread.join()
    assert done.is_set()
