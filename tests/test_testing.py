"""The checks themselves: for each check a model with a bug that this check finds, and no other check."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, column_counts
from recfusion.core.errors import InputError
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.popularity import Popularity, Random
from recfusion.models.settings import learned, self_tuned, setting
from recfusion.testing import ContractError, Subject, check_recommender, checks, tastes
from recfusion.training.epoch import Checkpoint, Epoch


@dataclass
class Sound(Recommender):
    """A model without a bug: how often a user's items occur together with each item, shrunk, and a little chance."""

    shrink: float = setting(
        10.0, "added to the counts that scores are divided by", at_least=0.1, search=(1, 100), log=True
    )
    chance: float = setting(0.01, "how much of a score is chance", at_least=0)
    together_: FloatArray = learned()  # (items, items)
    counts_: FloatArray = learned()  # (items,)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.counts_ = column_counts(train).astype(np.float32)
        drawn = make_rng(rng).random((train.shape[1],) * 2, np.float32)
        self.together_ = np.asarray((train.T @ train).toarray() + self.chance * drawn, np.float32)
        np.fill_diagonal(self.together_, 0)
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.together_) / (self.counts_ + np.float32(self.shrink))


@dataclass
class NoDefault(Sound):
    power: float = field(kw_only=True)


class NoDataclass(Sound):
    pass


@dataclass
class SilentlyZero(Sound):
    def score(self, history: Csr) -> FloatArray:
        if getattr(self, "together_", None) is None:
            return np.zeros(history.shape, np.float32)
        return super().score(history)


@dataclass
class Unchecked(Sound):
    def __post_init__(self) -> None:
        pass  # and the base class's is never called


@dataclass
class TupleSetting(Sound):
    powers: tuple[float, float] = setting((1.0, 2.0), "which JSON makes a list of")


@dataclass
class ForbiddenEnd(Sound):
    power: float = setting(1.0, "whose range begins below what is allowed", at_least=0.5, search=(0.1, 2.0))


@dataclass
class LogFromZero(Sound):
    power: float = setting(1.0, "whose logarithm cannot be drawn", search=(0.0, 2.0), log=True)


@dataclass
class NothingToChoose(Sound):
    power: float = setting(1.0, "which is no closed choice", search="all")


@dataclass
class ComparesArrays(Sound):
    extra_: FloatArray = field(init=False, repr=False, metadata={"learned": True})

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.extra_ = np.ones(3, np.float32)
        return super().fit(train, valid, rng=rng)


@dataclass
class HasLock(Sound):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.lock = threading.Lock()


@dataclass
class ReturnsNothing(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        return None  # type: ignore[return-value]


@dataclass
class CutsSetting(Sound):
    neighbours: int = setting(100, "at most as many as there are items", at_least=1)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.neighbours = min(self.neighbours, train.shape[1])
        return super().fit(train, valid, rng=rng)


@dataclass
class Squeezes(Sound):
    def score(self, history: Csr) -> FloatArray:
        return super().score(history).squeeze()


@dataclass
class FailsOnNobody(Sound):
    def score(self, history: Csr) -> FloatArray:
        return np.stack([super(FailsOnNobody, self).score(history[[row]])[0] for row in range(history.shape[0])])


@dataclass
class Float64(Sound):
    def score(self, history: Csr) -> FloatArray:
        return super().score(history).astype(np.float64)


@dataclass
class NotANumber(Sound):
    def score(self, history: Csr) -> FloatArray:
        scores = super().score(history)
        scores[np.diff(history.indptr) == 5] = np.nan  # as all users have whom the kit asks for
        return scores


@dataclass
class Unbounded(NotANumber):
    def score(self, history: Csr) -> FloatArray:
        return np.where(np.isnan(super().score(history)), np.float32(np.inf), np.float32(0))


@dataclass
class MixesUsers(Sound):
    def score(self, history: Csr) -> FloatArray:
        scores = super().score(history)
        return scores - scores.sum(axis=0) / max(1, len(scores))


@dataclass
class CountsRows(Sound):
    def score(self, history: Csr) -> FloatArray:
        return super().score(history) + np.arange(history.shape[0], dtype=np.float32)[:, None]


@dataclass
class Finds(Sound):
    @property
    def finds(self) -> bool:
        return True

    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        return top_k(self.score(history), history, k)


@dataclass
class FindsWhatIsThere(Finds):
    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        return top_k(self.score(history), csr_array(history.shape, dtype=np.float32), k)


@dataclass
class FindsOtherScores(Finds):
    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        items, values = super().find(history, k, allowed)
        return items, values + 1


@dataclass
class FindsTooMany(Finds):
    def find(self, history: Csr, k: int, allowed: NDArray[np.bool_] | None = None) -> tuple[IntArray, FloatArray]:
        return super().find(history, k + 1, allowed)


@dataclass
class HandsOutItsOwn(Popularity):
    def score(self, history: Csr) -> FloatArray:
        return np.broadcast_to(self.popularity_, history.shape)


@dataclass
class OneBuffer(Sound):
    def score(self, history: Csr) -> FloatArray:
        scores = super().score(history)
        own = vars(self).setdefault("own", threading.local())  # so that threads at least have one each
        if getattr(own, "out", scores[:0]).shape != scores.shape:
            own.out = np.empty_like(scores)
        own.out[:] = scores
        kept: FloatArray = own.out
        return kept


@dataclass
class SharesRows(Sound):
    gate: ClassVar[threading.Barrier] = threading.Barrier(4)  # at which the kit's threads meet, whatever their speed

    def score(self, history: Csr) -> FloatArray:
        self.rows = history
        if threading.current_thread() is not threading.main_thread():
            self.gate.wait()
        return super().score(self.rows)


@dataclass
class WeightsInPlace(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        train.data *= 2
        return self


@dataclass
class WeightsHistoryInPlace(Sound):
    def score(self, history: Csr) -> FloatArray:
        history.data *= 2
        return super().score(history)


@dataclass
class EmptiesValidation(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        if valid is not None:
            valid.held_out.data[:] = 0
        return super().fit(train, valid, rng=rng)


@dataclass
class GlobalChance(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        return super().fit(train, valid, rng=np.random.randint(2**31))


@dataclass
class SeedsAlone(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        return super().fit(train, valid, rng=None if rng is None else int(rng))  # type: ignore[arg-type]


@dataclass
class OnTheClass(Sound):
    kept: ClassVar[Any] = None

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        type(self).kept = self.together_
        return self

    def load_state(self, state: Any, chosen: Any, n_items: int) -> None:
        super().load_state(state, chosen, n_items)
        type(self).kept = self.together_

    def score(self, history: Csr) -> FloatArray:
        _ = self.together_
        return np.asarray(history @ self.kept) / (self.counts_ + np.float32(self.shrink))


@dataclass
class AddsUp(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        before = vars(self).get("together_", 0.0)
        super().fit(train, valid, rng=rng)
        self.together_ = self.together_ + np.float32(before)
        return self


@dataclass
class YieldsNumbers(Sound):
    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        self.fit(train, valid, rng=rng)
        yield 1  # type: ignore[misc]


@dataclass
class ForgetsTheSeed(Sound):
    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        self.fit(train, valid)
        return iter(())


@dataclass
class Reads(Sound):
    """A sound model that gives less to what was disliked."""

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        return super().fit(train, valid, rng=rng)

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return super().score(history) if extra is None else super().score(history) - _disliked(extra)


def _disliked(extra: Extra) -> FloatArray:
    assert extra.disliked is not None
    return extra.disliked.toarray()


@dataclass
class DividesByDislikes(Reads):
    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return super().score(history) / (1 if extra is None else _disliked(extra))


@dataclass
class ChangesSignals(Reads):
    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        if extra is not None and extra.disliked is not None:
            extra.disliked.data[:] = 1
        return super().score(history, extra=extra)


@dataclass
class NeedsValidation(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        assert valid is not None
        return super().fit(train, valid, rng=rng)


@dataclass
class NeedsSeed(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        assert rng is not None
        return super().fit(train, valid, rng=rng)


@dataclass
class DividesByLength(Sound):
    def score(self, history: Csr) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return super().score(history) / np.diff(history.indptr).astype(np.float32)[:, None]


@dataclass
class DividesByUnseen(Sound):
    def score(self, history: Csr) -> FloatArray:
        unseen = history.shape[1] - np.diff(history.indptr).astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            return super().score(history) / unseen[:, None]


@dataclass
class DividesByCount(Sound):
    def score(self, history: Csr) -> FloatArray:
        with np.errstate(divide="ignore"):
            return super().score(history) + np.float32(1) / self.counts_


@dataclass
class DividesByUsersLength(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        self.counts_ = self.counts_ * np.float32(sum(1 / length for length in np.diff(train.indptr).tolist()))
        return self


@dataclass
class DrawsFiveUsers(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        np.random.default_rng(0).choice(train.shape[0], 5, replace=False)
        return super().fit(train, valid, rng=rng)


@dataclass
class DeviatesFromUsers(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        self.counts_ = self.counts_ * np.float32(1 / (train.shape[0] - 1))
        return self


@dataclass
class DeviatesFromItems(Sound):
    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        super().fit(train, valid, rng=rng)
        self.counts_ = self.counts_ * np.float32(1 / (train.shape[1] - 1))
        return self


@dataclass
class ChoosesNumpy(Sound):
    def chosen(self) -> dict[str, Any]:
        return {"shrink": np.float32(self.shrink)}


@dataclass
class NeverSettles(Sound):
    def chosen(self) -> dict[str, Any]:
        return {"shrink": self.shrink}


@dataclass
class ForgetsItsChoice(Sound):
    power: float | None = self_tuned(1.0, "which fit never sets", search=(0.5, 2.0))
    power_: float = learned()


@dataclass
class KeepsNames(Sound):
    names_: dict[str, int] = learned()

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        self.names_ = {"a": 1}
        return super().fit(train, valid, rng=rng)


@dataclass
class SavesHalf(Sound):
    counts_: FloatArray = field(init=False, repr=False, compare=False)  # and not declared as learned


@dataclass
class SavesRounded(Sound):
    def state(self) -> Any:
        return {name: array.astype(np.float16).astype(np.float32) for name, array in super().state().items()}


@dataclass
class TakesLong(Sound):
    def seconds(self, shape: Shape) -> float | None:
        return "hours"  # type: ignore[return-value]


@dataclass
class TakesForEver(Sound):
    def seconds(self, shape: Shape) -> float | None:
        return float("inf")


@dataclass
class EconomicalItself(Sound):
    def economical(self, shape: Shape) -> Self:
        self.shrink = 1.0
        return self


@dataclass
class EconomicalNone(Sound):
    def economical(self, shape: Shape) -> Self:
        return None  # type: ignore[return-value]


# A model, the check that is there for its bug, and the checks that cannot but fail with it.
BROKEN: list[tuple[Recommender, str, set[str]]] = [
    (NoDefault(power=1.0), "made_by_defaults", set()),
    (NoDataclass(), "made_by_defaults", {"saved"}),
    (SilentlyZero(), "not_fitted", set()),
    (Unchecked(), "settings_checked", set()),
    (TupleSetting(), "settings_in_json", {"saved"}),
    (ForbiddenEnd(), "search_ranges", set()),
    (LogFromZero(), "search_ranges", set()),
    (NothingToChoose(), "search_ranges", set()),
    (ComparesArrays(), "copied", set()),
    (HasLock(), "pickled", set()),
    (ReturnsNothing(), "returns_itself", set()),
    (CutsSetting(), "settings_stay", set()),
    (Squeezes(), "shape", {"saved"}),
    (FailsOnNobody(), "shape", set()),
    (Float64(), "float32", set()),
    (NotANumber(), "finite", {"train_alone", "unseen_item", "user_without_items", "few_users", "one_user"}),
    (Unbounded(), "finite", {"train_alone", "unseen_item", "user_without_items", "few_users", "one_user"}),
    (MixesUsers(), "user_alone", set()),
    (CountsRows(), "user_alone", set()),
    (FindsWhatIsThere(), "found", set()),
    (FindsOtherScores(), "found", set()),
    (FindsTooMany(), "found", set()),
    (HandsOutItsOwn(), "overwritten", set()),
    (OneBuffer(), "overwritten", set()),
    (SharesRows(), "threads", set()),
    (WeightsInPlace(), "inputs_stay", set()),
    (WeightsHistoryInPlace(), "inputs_stay", set()),
    (EmptiesValidation(), "inputs_stay", set()),
    (GlobalChance(), "same_seed", {"refit", "epochs"}),
    (SeedsAlone(), "same_seed", set()),
    (OnTheClass(), "fits_apart", set()),
    (AddsUp(), "refit", set()),
    (YieldsNumbers(), "epochs", set()),
    (ForgetsTheSeed(), "epochs", set()),
    (NeedsValidation(), "train_alone", {"one_item", "chosen"}),
    (NeedsSeed(), "train_alone", set()),
    (DividesByLength(), "empty_history", {"saved"}),
    (DividesByDislikes(), "signals", set()),
    (ChangesSignals(), "signals_stay", set()),
    (DividesByUnseen(), "full_history", {"one_item"}),
    (DividesByCount(), "unseen_item", {"few_users", "one_user"}),
    (DividesByUsersLength(), "user_without_items", set()),
    (DrawsFiveUsers(), "few_users", {"one_user"}),
    (DeviatesFromUsers(), "one_user", set()),
    (DeviatesFromItems(), "one_item", set()),
    (ChoosesNumpy(), "chosen", {"saved"}),
    (NeverSettles(), "chosen", set()),
    (ForgetsItsChoice(), "chosen", {"saved"}),
    (KeepsNames(), "state", {"saved"}),
    (SavesHalf(), "saved", set()),
    (SavesRounded(), "saved", set()),
    (TakesLong(), "seconds", set()),
    (TakesForEver(), "seconds", set()),
    (EconomicalItself(), "economical", set()),
    (EconomicalNone(), "economical", set()),
    (Random(), "learns_tastes", set()),
    (Popularity(), "learns_tastes", set()),
]


def failing(model: Recommender) -> list[str]:
    """Return the names of all checks that a model fails, in their order."""
    subject, found = Subject(model), []
    for check in checks(every=True):
        try:
            check(subject)
        except ContractError as error:
            found.append(error.check)
    return found


@pytest.mark.parametrize("model", [Sound(), Finds()])
def test_a_model_without_a_bug_passes_everything(model: Recommender) -> None:
    check_recommender(model, only=[check.name for check in checks(every=True)])


@pytest.mark.parametrize(("model", "check", "also"), BROKEN, ids=[type(model).__name__ for model, _, _ in BROKEN])
def test_a_bug_is_found_by_the_check_that_is_there_for_it(model: Recommender, check: str, also: set[str]) -> None:
    found = failing(model)
    assert found[0] == check
    if check != "learns_tastes":
        found = [name for name in found if name != "learns_tastes"]  # which says nothing of the contract
    assert set(found) == {check} | also


def test_every_check_has_a_bug_that_it_finds() -> None:
    assert {check for _, check, _ in BROKEN} == {check.name for check in checks(every=True)}


def test_a_model_that_reads_signals_passes_everything() -> None:
    check_recommender(Reads(), only=[check.name for check in checks(every=True)])


def test_signals_that_nobody_knows_are_told() -> None:
    @dataclass
    class ReadsStars(Reads):
        reads: ClassVar[frozenset[Any]] = frozenset({"stars"})

    with pytest.raises(ContractError, match="got a model that reads stars, of grades, times"):
        check_recommender(ReadsStars(), only="signals")


def test_what_sensible_models_may_fail_is_no_part_of_the_contract() -> None:
    check_recommender(Random())
    check_recommender(Popularity())
    assert [check.name for check in checks(every=True) if check not in checks()] == ["learns_tastes"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Float64(), "Float64 fails the check float32: expected that scores are float32, got float64."),
        (CutsSetting(), "expected that fit changes no setting, got a fitted model with neighbours = 24."),
        (Unchecked(), "refuses wrong settings by an InputError, got a model with shrink = Ellipsis."),
        (WeightsInPlace(), "do not change their inputs, got a changed training matrix."),
        (SilentlyZero(), "says so in one sentence, by an InputError, got an answer of score()."),
        (DeviatesFromItems(), "one item is enough, got ZeroDivisionError: division by zero."),
        (NoDataclass(), "got InputError: Expected the model NoDataclass to be a dataclass: write @dataclass above it."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Recommender) else "",
)
def test_the_error_says_what_is_wanted_and_what_came(model: Recommender, message: str) -> None:
    with pytest.raises(ContractError, match=re.escape(message)):
        check_recommender(model)


def test_scores_that_depend_on_the_batch_are_told_with_how_much() -> None:
    with pytest.raises(ContractError, match=r"scores that differ by up to 5 when users are asked for in another order"):
        check_recommender(CountsRows(), only="user_alone")


def test_what_the_model_raised_is_the_cause() -> None:
    with pytest.raises(ContractError) as caught:
        check_recommender(DeviatesFromUsers())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_only_the_checks_that_are_named_are_run() -> None:
    check_recommender(Float64(), only="shape")
    check_recommender(Float64(), only=["shape", "saved"])
    with pytest.raises(ContractError):
        check_recommender(Float64(), only=["shape", "float32"])
    with pytest.raises(InputError, match="Unknown check 'speed': choose one of made_by_defaults, "):
        check_recommender(Float64(), only="speed")


def test_a_class_in_place_of_an_instance_is_refused() -> None:
    with pytest.raises(InputError, match=r"Expected an instance .* got <class '.*Sound'>"):
        check_recommender(Sound)  # type: ignore[arg-type]


def test_the_model_that_is_checked_stays_as_it_is() -> None:
    model = Sound(shrink=3.0).fit(tastes(20, 0), rng=0)
    kept = model.together_.copy()
    check_recommender(model)
    assert model == Sound(shrink=3.0)
    assert (model.together_ == kept).all()


def test_a_class_that_no_other_process_can_import_is_none_the_worse() -> None:
    @dataclass
    class Local(Sound):
        """A model of a notebook."""

    check_recommender(Local())


def test_the_checks_are_made_with_the_settings_of_the_instance() -> None:
    with pytest.raises(ContractError, match="a fitted model with neighbours = 24"):
        check_recommender(CutsSetting(neighbours=25))
    check_recommender(CutsSetting(neighbours=1))


def test_made_up_users_have_tastes() -> None:
    users = tastes(30, 0).toarray()
    own = users.reshape(30, 3, 8).sum(axis=2)  # of each group's items
    assert [sorted(row) for row in own.astype(int).tolist()] == [[0, 1, 6]] * 30
    assert own.argmax(axis=1).tolist() == [0, 1, 2] * 10
    assert (users.sum(axis=0) > 0).all()
