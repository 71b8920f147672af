"""The checks of the contract, and the function that runs them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError, choices
from recfusion.models.base import Recommender
from recfusion.testing import declaration_checks as declared
from recfusion.testing import fit_checks as fits
from recfusion.testing.sample_data import N_ITEMS, Subject


class ContractError(AssertionError):
    """A model breaks the contract; `check` is the name of the failed check."""

    def __init__(self, model: str, check: "Check", came: str) -> None:
        super().__init__(f"{model} fails the check {check.name}: expected that {check.wants}, got {came}.")
        self.check = check.name


@dataclass(frozen=True)
class Check:
    """One thing that every model must do; `look` returns what it does instead, or None."""

    wants: str
    look: Callable[[Subject], str | None]
    called: str = ""  # its name, if it is not that of its function
    contract: bool = True  # False: sensible models may fail it, and it runs only by name

    def __call__(self, subject: Subject) -> None:
        """Raise a ContractError unless the model passes."""
        try:
            came = self.look(subject)
        except Exception as error:  # another person's model may raise anything
            message = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(" :.")
            raise ContractError(subject.kind.__name__, self, message) from error
        if came is not None:
            raise ContractError(subject.kind.__name__, self, came)

    @property
    def name(self) -> str:
        return self.called or self.look.__name__

    def __str__(self) -> str:
        return self.name


def check_recommender(model: Recommender, *, only: str | Iterable[str] | None = None) -> None:
    """Raise a ContractError for the first failed check of the contract, or of the checks named in `only`.

    `model` is an instance with the settings to test; it is copied and not changed.
    """
    if not isinstance(model, Recommender):
        raise InputError(f"Expected an instance of a class that inherits from Recommender, got {model!r}.")
    known = {check.name: check for check in checks(every=True)}
    names = [only] if isinstance(only, str) else [check.name for check in checks()] if only is None else list(only)
    for name in names:
        if name not in known:
            raise choices("check", name, known)
    subject = Subject(model)
    for name in names:
        known[name](subject)


def checks(*, every: bool = False) -> list[Check]:
    """Return the checks of the contract; with `every` also those that a sensible model may fail."""
    return [check for check in _CHECKS if check.contract or every]


def _rows(value: int, n_users: int = 2, n_items: int = N_ITEMS) -> Csr:
    return csr_array(np.full((n_users, n_items), value, np.float32))


_CHECKS = (
    Check("the class is a dataclass with a default for every setting", declared.made_by_defaults),
    Check("a model that is not fitted says so in one sentence, by an InputError", declared.not_fitted),
    Check("the constructor refuses wrong settings by an InputError", declared.settings_checked),
    Check("settings are the same after a round trip through JSON", declared.settings_in_json),
    Check("every search range is ascending and within the allowed values", declared.search_ranges),
    Check("dataclasses.replace gives an equal model that has learned nothing", declared.copied),
    Check("a model can be sent to another process", declared.pickled),
    Check("fit returns the model itself", fits.returns_itself),
    Check("fit changes no setting", fits.settings_stay),
    Check("scores are an array of the shape (users, items), also of one user or none", fits.shape),
    Check("scores are float32", fits.float32),
    Check("scores are numbers, or -inf for items never recommended", lambda s: fits.unsound(s.scores), "finite"),
    Check("a user's scores depend on that user's history alone", fits.user_alone),
    Check("lists from the model's index have unseen items with the scores of score()", fits.found),
    Check("the caller may overwrite the scores and the model stays the same", fits.overwritten),
    Check("several threads that score at once get the same scores as one thread", fits.threads),
    Check("fit and score do not change their inputs", fits.inputs_stay),
    Check("the same seed gives the same scores, as a number or as a generator", fits.same_seed),
    Check("the fit of one model does not change another model", fits.fits_apart),
    Check("a second fit gives the same scores as a fresh model", fits.refit),
    Check("epochs() yields Epochs or nothing, and gives the same scores as fit", fits.epochs),
    Check("fit needs neither validation users nor a seed", fits.train_alone),
    Check("scores of a user without history are numbers", lambda s: fits.unsound(s.score(_rows(0))), "empty_history"),
    Check("scores of a user who has all items are numbers", lambda s: fits.unsound(s.score(_rows(1))), "full_history"),
    Check("a model that reads signals fits and scores with them, and scores without them", fits.signals),
    Check("fit and score do not change signals", fits.signals_stay),
    Check("an item without training users is accepted", fits.unseen_item),
    Check(
        "a training user without items is accepted",
        lambda s: fits.fits(s, vstack([s.train, _rows(0)], "csr"), s.few, s.asked),
        "user_without_items",
    ),
    Check("three training users are enough", lambda s: fits.fits(s, s.train[:3], s.few, s.asked), "few_users"),
    Check("one training user is enough", lambda s: fits.fits(s, s.train[:1], s.few, s.asked), "one_user"),
    Check("one item is enough", lambda s: fits.fits(s, _rows(1, 6, 1), None, _rows(1, 1, 1)), "one_item"),
    Check("chosen settings can be written to JSON, and a settled model needs no validation users", declared.chosen),
    Check("state() holds arrays of finite numbers", declared.state),
    Check("a saved and loaded model gives bit-identical scores", declared.saved),
    Check("seconds() is None or a number of at least 0", declared.seconds),
    Check("economical() returns a model of the same class and does not change the model itself", declared.economical),
    Check("the item withheld from a checkerboard ranks first", fits.learns_tastes, contract=False),
)
