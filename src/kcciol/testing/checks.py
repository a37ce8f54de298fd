"""The promises of a learner, a check each."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kcciol.learner import OnlineLearner
from kcciol.learners.base import Learner
from kcciol.learners.model import Head
from kcciol.random import generator
from kcciol.serialization import from_dict
from kcciol.testing.case import WIDTH, Case, answers, equal, examples, feed, near, same


def check_card(case: Case) -> None:
    """Its class says what it is, where it comes from and what it keeps; the settings that it names exist."""
    card, kind = case.method.card, case.method.settings_type
    case.require(
        bool(card.what and card.paper and card.keeps), "its card must say what it is, its paper, what it keeps."
    )
    known = {f.name for f in dataclasses.fields(kind)}
    named = {*case.method.grid, *case.method.idle, *([card.capacity] if card.capacity else [])}
    case.require(named <= known, f"{', '.join(sorted(named - known))} is named in its class, but is no setting of it.")
    case.require(card.replay or not card.capacity, "its card names a capacity, but says that it replays nothing.")
    case.require(bool(card.trains) and set(card.trains) <= {"head", "all"}, "its card trains 'head', 'all' or both.")
    for trains in card.trains:
        case.require(all(map(len, case.method.grid_for(trains).values())), "its grid has a setting without values.")


def check_settings_are_refused(case: Case) -> None:
    """Settings that do not exist, are of another type or are not finite raise a UserError."""
    kind = case.method.settings_type
    case.require_refusal(lambda: from_dict(kind, {"no_such_setting": 1}), "a setting that there is none of")
    for field in dataclasses.fields(case.settings):
        value = getattr(case.settings, field.name)
        bad: list[Any] = [math.nan, math.inf] if isinstance(value, float) else []
        for wrong in (*bad, ["a list"]):
            settings = dataclasses.replace(case.settings, **{field.name: wrong})
            what = f"the setting {field.name} = {wrong!r}"
            case.require_refusal(lambda settings=settings: case.method(case.model, settings), what)  # type: ignore[misc]


def check_it_learns(case: Case) -> None:
    """It tells classes apart that lie far from each other."""
    learner = case.make()
    x, y = examples(learner.model, 100)
    order = generator(0).permutation(100)
    feed(learner, x[order], y[order], tasks=False)
    right = float((answers(learner, x)[0].cpu().numpy() == y).mean())
    case.require(right > 0.8, f"it answers {100 * right:.0f} % of what it has learned, where 80 % are asked for.")


def check_one_example(case: Case) -> None:
    """One example of one class is enough to answer; none is not."""
    learner = case.make()
    x, _ = examples(learner.model, 1)
    case.require_refusal(lambda: learner.scores(x[None]), "an answer before anything is learned", learner)
    feed(learner, x, np.array([0]))
    case.require(learner.scores(x[None]).shape == (1, 1, 1), "scores are (copies, examples, classes).")
    case.require(answers(learner, x).tolist() == [[0]], "the only class there is must be the answer.")


def check_labels_at_any_time(case: Case) -> None:
    """A label may be new at any time and leave gaps; the score of a class not seen is minus infinity, and no other."""
    learner = case.make()
    x, _ = examples(learner.model, 3)
    feed(learner, x, np.array([5, 2, 30]))
    scores = learner.scores(x[None])
    case.require(
        scores.shape == (1, 3, 31), f"with the highest label 30 the scores are of 31 classes, not {scores.shape}."
    )
    seen = torch.zeros(31, dtype=torch.bool)
    seen[[2, 5, 30]] = True
    case.require(bool((scores[0, :, ~seen] == -torch.inf).all()), "a class not seen has the score minus infinity.")
    case.require(bool(scores[0, :, seen].isfinite().all()), "a class that was seen has a finite score.")


def check_dull_and_extreme_inputs(case: Case) -> None:
    """Repeated, constant and extreme inputs give no NaN."""
    learner, extreme = case.make(), case.make()
    x, y = examples(learner.model, 12)
    feed(learner, x[:1].expand(12, *x.shape[1:]), np.arange(12) // 6)
    feed(learner, torch.zeros_like(x), np.arange(12) // 6)
    case.require(bool(learner.scores(x[None, :1]).isfinite().all()), "repeated and constant inputs must do no harm.")
    x = x * 1e6 if x.is_floating_point() else (x.to(torch.int64) // 128 * 255).to(x.dtype)
    feed(extreme, x, y)
    case.require(not bool(extreme.scores(x[None]).isnan().any()), "extreme values must give no NaN.")


def check_copies(case: Case) -> None:
    """The same keys learn the same, bit for bit; copies side by side learn what each would alone."""
    (first, y), (second, _) = (examples(case.model, 12, seed) for seed in (0, 1))  # few: rounding grows
    streams = torch.stack([first, second])
    both, again, one, two = (case.make(keys) for keys in ((3, 8), (3, 8), (3,), (8,)))
    for learner, own in ((both, streams), (again, streams), (one, streams[:1]), (two, streams[1:])):
        feed(learner, own, y)
    case.require(same(both, again), "the same keys must learn the same, bit for bit.")
    alone = torch.cat([one.scores(streams[:1]), two.scores(streams[1:])])
    case.require(near(both.scores(streams), alone), "copies side by side must learn what each of them learns alone.")


def check_restored(case: Case) -> None:
    """`load_state_dict` of `state_dict` goes on to the same bits, whatever the other one knew before."""
    x, y = examples(case.model, 24)
    whole, first, second = case.make(), case.make(), case.make()
    feed(whole, x, y)
    feed(first, x[:13], y[:13])
    feed(second, x[5:], y[5:] * 3)
    second.scores(x[None])  # what was derived of it is gone too
    second.load_state_dict(first.state_dict())
    case.require(same(first, second), "a learner that is restored must know what the saved one knows, bit for bit.")
    alike = torch.equal(first.scores(x[None]), second.scores(x[None]))
    case.require(alike, "a learner that is restored must answer as the saved one does.")
    for i in range(13, 24):
        if y[i] != y[i - 1]:
            second.end_task()
        second.learn(x[i : i + 1], y[i : i + 1])
    case.require(same(whole, second), "restored in the middle of a stream it must end in the same bits.")
    wrong = first.state_dict() | {"no such tensor": torch.zeros(1)}
    case.require_refusal(lambda: second.load_state_dict(wrong), "the state of another kind of learner", second)


def check_copied(case: Case) -> None:
    """A copy, also one that was pickled, goes on to the same bits by itself."""
    x, y = examples(case.model, 16)
    for duplicate in (copy.deepcopy, pickled):
        one = case.make()
        feed(one, x[:10], y[:10])
        two = duplicate(one)
        before = two.state_dict()
        feed(one, x[:6], y[:6])  # of classes that it knows: a new one would renew what is derived of the tensors
        case.require(equal(before, two.state_dict()), "a copy must not change while the learner goes on.")
        feed(two, x[:6], y[:6])
        case.require(same(one, two), "a copy must learn what the learner itself does, bit for bit.")
        case.require(torch.equal(one.scores(x[None]), two.scores(x[None])), "a copy must answer as the learner does.")


def pickled(learner: Learner) -> Learner:
    """A copy by way of bytes; of a class within a function, which has none, as any other."""
    try:
        written = pickle.dumps(learner)
    except (pickle.PicklingError, AttributeError):
        return copy.deepcopy(learner)
    found: Learner = pickle.loads(written)
    return found


def check_state_is_a_copy(case: Case) -> None:
    """Answering changes nothing, and a state that was taken stays as it is while the learner goes on."""
    learner = case.make()
    x, y = examples(case.model, 10)
    feed(learner, x[:5], y[:5])
    state = learner.state_dict()
    before = {name: tensor.clone() for name, tensor in state.items()}
    learner.scores(x[None])
    case.require(equal(before, learner.state_dict()), "answering must not change what it knows.")
    feed(learner, x[5:], y[5:])
    case.require(equal(before, state), "a state that was taken must not change while the learner goes on.")


def check_a_class_at_once(case: Case) -> None:
    """`learn_class` learns what `learn` learns of the same examples one by one, but for rounding."""
    for keys in ((3,), (3, 8)):
        check_same_by_class(case, case.make(keys), case.make(keys))


def check_same_by_class(case: Case, one: Learner, many: Learner) -> None:
    """Feeds both, each copy with its own stream and order of classes, examples one by one and class by class."""
    n = one.copies
    pairs = [examples(one.model, 24, seed=copy) for copy in range(n)]
    x, y = torch.stack([pair[0] for pair in pairs]), pairs[0][1]
    order = [*range(0, 5), *range(6, 9), *range(12, 15), 5, *range(9, 12), *range(15, 24)]  # a class comes back
    for first, last in ((0, 5), (5, 8), (8, 11), (11, 12), (12, 15), (15, 18), (18, 24)):
        block = x[:, order[first:last]]
        label = (y[order[first]] + np.arange(n)) % 4  # another in each copy
        for i in range(block.shape[1]):
            one.learn(block[:, i], label)
        many.learn_class(block, label)
        one.end_task()
        many.end_task()
    case.require(one.steps == many.steps, "learn_class must count its examples as learn does.")
    case.require(near(one.scores(x), many.scores(x), 1e-4), "learn_class must learn what learn does, one by one.")
    states = one.state_dict(), many.state_dict()
    alike = states[0].keys() == states[1].keys()
    case.require(
        alike and all(near(states[0][name], states[1][name], 1e-4) for name in states[0]),
        "learn_class must leave the state that learn does, one by one.",
    )


def check_bad_inputs_are_refused(case: Case) -> None:
    """Examples of another shape or type, or not finite, and labels that are none, are refused and change nothing."""
    learner = case.make()
    x, y = examples(case.model, 6)
    feed(learner, x, y)
    good = np.array([0])
    wrong = [(x[:1, ..., :-1], "an example of another width"), (x[:1].double(), "an example of another type")]
    if x.is_floating_point():
        wrong += [(x[:1] * torch.nan, "an example of NaN"), (x[:1] * torch.inf, "an example of infinity")]
    for bad, what in wrong:
        case.require_refusal(lambda bad=bad: learner.learn(bad, good), what, learner)  # type: ignore[misc]
        case.require_refusal(lambda bad=bad: learner.learn_class(bad[None], good), what, learner)  # type: ignore[misc]
        case.require_refusal(lambda bad=bad: learner.scores(bad[None]), what, learner)  # type: ignore[misc]
    case.require_refusal(lambda: learner.learn(x[:1], good - 1), "a label below 0", learner)
    case.require_refusal(lambda: learner.learn_class(x[None], np.array([0, 1])), "a label too many", learner)
    case.require_refusal(lambda: learner.learn_class(x[None, :0], good), "a class of no examples", learner)
    case.require_refusal(lambda: learner.learn_class(x[:1], good), "one example where there should be several", learner)


def check_no_gradients_are_kept(case: Case) -> None:
    """Examples that ask for gradients are learned without."""
    learner = case.make()
    x, _ = examples(case.model, 3)
    if x.is_floating_point():
        learner.learn_class(x[None].requires_grad_(), np.array([0]))
        learner.learn(x[:1].requires_grad_(), np.array([0]))
        wants = any(tensor.requires_grad for tensor in learner.state_dict().values())
        case.require(not wants, "what it knows must not ask for gradients.")


def check_memory_is_honest(case: Case) -> None:
    """`memory()` counts all of the state but the weights; examples are in it if, and only if, the card says replay.

    Going on needs the state and nothing else (`check_restored`), so its size is what is kept.
    """
    learner = case.make((1, 2))
    x, y = examples(case.model, 20)
    case.require(not learner.memory().get("memory", 0), "before the first example it can keep no examples.")
    feed(learner, x, y)
    state = learner.state_dict()
    kept = sum(t.nbytes for name, t in state.items() if not name.startswith(("parameters.", "bookkeeping.")))
    counted = sum(learner.memory().values())
    case.require(counted == kept // 2, f"it counts {counted} bytes of memory, but its state has {kept // 2} a copy.")
    keeps = learner.memory().get("memory", 0) > 0
    case.require(
        keeps == case.method.card.replay, "it keeps examples (memory.*) if, and only if, its card says replay."
    )


def check_room_is_counted(case: Case) -> None:
    """What it takes when it is made and loaded is at most what its state holds and what `extra_bytes` says."""
    learner, loaded = case.make(), case.make()
    x, y = examples(case.model, 20)
    feed(learner, x, y)
    state = learner.state_dict()
    loaded.load_state_dict(state)
    told = case.method.extra_bytes(case.model, case.settings, learner.classes)
    taken, kept = tensor_bytes(vars(loaded)), sum(tensor.nbytes for tensor in state.values())
    case.require(told >= 0, f"extra_bytes says {told}, but must be 0 or more.")
    case.require(
        taken <= kept + told,
        f"loaded it takes {taken} bytes, where its state has {kept} and extra_bytes says {told} beyond that.",
    )


def tensor_bytes(values: Mapping[str, Any]) -> int:
    """Bytes of the tensors among these, each memory once."""
    found: dict[int, int] = {}
    waiting: list[Any] = list(values.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
    return sum(found.values())


def check_order(case: Case) -> None:
    """Where the card says that it is free of the order, the order of the examples changes no answer."""
    if not case.method.card.order_free:
        return
    x, y = examples(case.model, 60)
    order = generator(1).permutation(60)
    one, two = case.make(), case.make()
    feed(one, x, y)
    feed(two, x[order], y[order])
    case.require(near(one.scores(x[None]), two.scores(x[None]), 1e-4), "its card says that it is free of the order.")


def check_online(case: Case) -> None:
    """An `OnlineLearner`, which may answer from a snapshot, answers what the learner itself does."""
    if not case.name or not isinstance(case.model, Head):
        return
    x, y = examples(case.model, 20)
    one = OnlineLearner(case.name, WIDTH, case.settings)
    for i in range(0, 20, 3):
        one.learn_one(x[i], int(y[i]))
        scores = one.learner.scores(x[None])[0].double()
        told = torch.tensor([[*one.scores_one(example).values()] for example in x], dtype=torch.float64)
        case.require(near(told, scores, 1e-4), "OnlineLearner.scores_one must say what its scores are.")
        best = scores.gather(1, torch.tensor([one.classes_.index(label) for label in one.predict_many(x)])[:, None])
        highest = scores.amax(1, keepdim=True)
        case.require(near(best, highest, 1e-4), "OnlineLearner.predict_many must answer the highest of its scores.")


def check_files(case: Case) -> None:
    """An `OnlineLearner` that is saved and loaded goes on exactly, with labels of any kind."""
    if not case.name or not isinstance(case.model, Head):
        return
    x, y = examples(case.model, 20)
    names = ["cat", "dog", 3, None]
    whole, first = (OnlineLearner(case.name, WIDTH, case.settings) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        for i in range(20):
            whole.learn_one(x[i], names[y[i]])
        for i in range(9):
            first.learn_one(x[i], names[y[i]])
        first.save(Path(folder) / "learner.safetensors")
        second = OnlineLearner.load(Path(folder) / "learner.safetensors")
    case.require(second.settings == case.settings, "a learner that is loaded has the settings of the saved one.")
    for i in range(9, 20):
        second.learn_one(x[i], names[y[i]])
    alike = all(second.scores_one(example) == whole.scores_one(example) for example in x)
    case.require(alike, "a learner that is saved and loaded must go on exactly.")


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_card,
    check_settings_are_refused,
    check_it_learns,
    check_one_example,
    check_labels_at_any_time,
    check_dull_and_extreme_inputs,
    check_copies,
    check_restored,
    check_copied,
    check_state_is_a_copy,
    check_a_class_at_once,
    check_bad_inputs_are_refused,
    check_no_gradients_are_kept,
    check_memory_is_honest,
    check_room_is_counted,
    check_order,
    check_online,
    check_files,
)
