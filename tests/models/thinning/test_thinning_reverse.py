"""The reverse process as a ranking: what stays, what comes back first, and that drawn lists follow the softmax."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.evaluation.topk import top_k
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.reverse import reverse_scores

Score = Callable[[Csr], FloatArray]
N_ITEMS = 30
WEIGHTS = np.random.default_rng(0).normal(size=(N_ITEMS, N_ITEMS)).astype(np.float32)
HISTORY = random_csr(12, N_ITEMS, 0.4, 1)


def linear(history: Csr) -> FloatArray:
    """Return x W: what joins the history changes all scores."""
    return np.asarray(history @ WEIGHTS, np.float32)


def fixed(values: list[float]) -> Score:
    """Return a scorer that gives every user the same scores."""
    return lambda history: np.tile(np.array(values, np.float32), (history.shape[0], 1))


def lists(score: Score, history: Csr, k: int = 10, **options: float) -> list[list[int]]:
    scores = reverse_scores(score, history, **options)  # type: ignore[arg-type]
    return [[int(item) for item in row] for row in top_k(scores, history, k)[0]]


def test_one_step_without_noise_is_the_score_itself() -> None:
    assert (reverse_scores(linear, HISTORY) == linear(HISTORY)).all()
    assert (reverse_scores(linear, HISTORY, steps=1, temperature=0, draw=7) == linear(HISTORY)).all()


def test_two_steps_bring_back_half_of_what_is_missing_and_score_again() -> None:
    """Eight items of ten are there, two are missing: one comes back, joins the history, and leads the list."""
    history = csr([[0, 3, 5, 8, 11, 20, 21, 29]], N_ITEMS)
    first = top_k(linear(history), history, 1)[0][0, 0]
    joined = csr([sorted([*history.indices.tolist(), int(first)])], N_ITEMS)
    later = top_k(linear(joined), joined, 9)[0][0].tolist()
    assert lists(linear, history, steps=2) == [[first, *later]]


@pytest.mark.parametrize("steps", [2, 3, 7])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_the_history_stays_and_never_comes_back(steps: int, temperature: float) -> None:
    asked: list[Csr] = []

    def watched(history: Csr) -> FloatArray:
        asked.append(history)
        return linear(history)

    found = lists(watched, HISTORY, N_ITEMS, steps=steps, temperature=temperature)
    assert len(asked) == steps
    for now in asked:
        assert (now.toarray() >= HISTORY.toarray()).all()
        assert set(np.unique(now.toarray())) == {0, 1}
    for row, items in enumerate(found):
        own = HISTORY[[row]].indices.tolist()
        shown = [item for item in items if item >= 0]
        assert sorted(shown + own) == list(range(N_ITEMS))  # everything else, each once


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_what_an_earlier_step_brings_back_stands_before_what_later_ones_do(temperature: float) -> None:
    """The items that have joined by the last step lead the list, in the order of the steps in which they joined."""
    asked: list[Csr] = []

    def watched(history: Csr) -> FloatArray:
        asked.append(history)
        return linear(history)

    history = csr([list(range(20)), list(range(4)), []], N_ITEMS)  # 5, 1 and no items are missing
    found = lists(watched, history, steps=5, temperature=temperature)
    for row, n_back in enumerate((4, 1, 0)):
        joined = [set(now[[row]].indices.tolist()) for now in asked]
        assert len(joined[-1] - joined[0]) == n_back
        place = 0
        for before, after in pairwise(joined):
            new = after - before
            assert set(found[row][place : place + len(new)]) == new
            place += len(new)


def test_items_of_one_step_keep_the_order_of_their_scores() -> None:
    history = csr([list(range(16))], 24)  # four are missing: two in the first of two steps
    values = [0.0] * 16 + [1.0, 8.0, 2.0, 9.0, 3.0, 4.0, 5.0, 6.0]
    assert lists(fixed(values), history, 8, steps=2) == [[19, 17, 23, 22, 21, 20, 18, 16]]


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_user_s_list_does_not_depend_on_who_else_is_asked_for(steps: int, temperature: float) -> None:
    together = lists(linear, HISTORY, steps=steps, temperature=temperature)
    order = np.random.default_rng(0).permutation(12)
    shuffled = lists(linear, HISTORY[order], steps=steps, temperature=temperature)
    assert shuffled == [together[row] for row in order]
    for row in range(12):
        assert lists(linear, HISTORY[[row]], steps=steps, temperature=temperature) == [together[row]]


def test_the_order_in_which_a_history_is_stored_changes_nothing() -> None:
    straight = csr([[1, 4, 9]], N_ITEMS)
    turned = csr_array((np.ones(3, np.float32), np.array([9, 1, 4]), np.array([0, 3])), shape=(1, N_ITEMS))
    one, two = (lists(linear, history, temperature=1.0, steps=2) for history in (straight, turned))
    assert one == two


@pytest.mark.parametrize("steps", [1, 3])
def test_another_draw_is_another_list_and_the_same_draw_the_same(steps: int) -> None:
    drawn = [lists(linear, HISTORY, steps=steps, temperature=1.0, draw=draw) for draw in (0, 1, 0)]
    assert drawn[0] == drawn[2]
    assert sum(one != other for one, other in zip(drawn[0], drawn[1], strict=True)) >= 10
    assert lists(linear, HISTORY, steps=steps, draw=0) == lists(linear, HISTORY, steps=steps, draw=1)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_colder_the_nearer_to_the_best_list(steps: int) -> None:
    best = lists(linear, HISTORY, steps=steps)
    assert lists(linear, HISTORY, steps=steps, temperature=1e-6) == best

    def shared(temperature: float) -> int:
        drawn = lists(linear, HISTORY, steps=steps, temperature=temperature)
        return sum(len(set(one) & set(other)) for one, other in zip(best, drawn, strict=True))

    assert shared(0.1) > shared(3.0) > shared(100.0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_first_item_of_a_drawn_list_follows_the_softmax(temperature: float) -> None:
    """Four unseen items, 4,000 draws: chi-square of three degrees of freedom stays below its 99.9 % point."""
    values = [9.0, 0.3, 1.0, -0.4, 0.0]  # item 0 is the history
    history = csr([[0]], 5)
    n_draws = 4000
    counts = np.zeros(5)
    for draw in range(n_draws):
        counts[lists(fixed(values), history, 1, temperature=temperature, draw=draw)[0][0]] += 1
    expected = np.exp(np.array(values[1:]) / temperature)
    expected *= n_draws / expected.sum()
    assert counts[0] == 0
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 16.27


def test_users_of_one_draw_have_noise_of_their_own() -> None:
    """All have the same scores; what they lead with is spread over the items."""
    history = csr([[row % 10, 10 + row // 10] for row in range(100)], N_ITEMS)
    leads = [row[0] for row in lists(fixed([0.0] * N_ITEMS), history, 1, temperature=1.0)]
    assert len(set(leads)) > 15


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_nobody_and_users_without_history_or_with_everything_break_nothing(steps: int) -> None:
    nobody = reverse_scores(linear, csr([], N_ITEMS), steps=steps, temperature=1.0)
    assert nobody.shape == (0, N_ITEMS)
    odd = csr([[], list(range(N_ITEMS)), list(range(N_ITEMS - 1))], N_ITEMS)
    found = lists(linear, odd, 3, steps=steps, temperature=1.0)
    assert len(set(found[0])) == 3
    assert found[1] == [-1, -1, -1]
    assert found[2] == [N_ITEMS - 1, -1, -1]


def test_the_mixture_takes_its_options_from_its_settings() -> None:
    train = random_csr(40, N_ITEMS, 0.3, 2)
    model = Thinning(members="popularity,thinning-linear", tune_trials=0).fit(train, rng=0)
    plain = model.score(HISTORY)
    model.steps = 3
    several = model.score(HISTORY)
    model.steps, model.temperature = 1, 1.0
    drawn = model.score(HISTORY)
    model.draw = 1
    again = model.score(HISTORY)
    assert (several == reverse_scores(model._mixed, HISTORY, steps=3)).all()
    assert not (plain == several).all()
    assert not (plain == drawn).any()
    assert not (drawn == again).any()
