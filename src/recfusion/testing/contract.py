"""The contract as a table of checks, and how they are run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from recfusion.core.errors import InputError, choices
from recfusion.models.base import Recommender
from recfusion.testing import declaration_checks as declared
from recfusion.testing import fit_checks as fits
from recfusion.testing.sample_data import Subject


class ContractError(AssertionError):
    """A model breaks the contract; `check` is the name of what found it."""

    def __init__(self, model: str, check: "Check", came: str) -> None:
        super().__init__(f"{model} fails the check {check.name}: expected that {check.wants}, got {came}.")
        self.check = check.name


@dataclass(frozen=True)
class Check:
    """One thing that every model must do; `look` returns what came where it is not that."""

    wants: str
    look: Callable[[Subject], str | None]
    contract: bool = True  # otherwise sensible models may fail it, and it is run only by its name

    def __call__(self, subject: Subject) -> None:
        """Raise a ContractError unless the model passes."""
        try:
            came = self.look(subject)
        except Exception as error:  # whatever somebody else's model raises
            told = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(" :.")
            raise ContractError(subject.kind.__name__, self, told) from error
        if came is not None:
            raise ContractError(subject.kind.__name__, self, came)

    @property
    def name(self) -> str:
        """The check's name: that of its function."""
        return self.look.__name__

    def __str__(self) -> str:
        return self.name


def check_recommender(model: Recommender, *, only: str | Iterable[str] | None = None) -> None:
    """Raise a ContractError at the first check that a model fails: all of the contract, or those named in `only`.

    `model` is an instance with the settings that are to be tried; it is copied and stays as it is.
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
    """Return the checks of the contract; with `every` also those that a model may fail and still be one."""
    return [check for check in _CHECKS if check.contract or every]


_CHECKS = (
    Check("the class is a dataclass of which every setting has a default", declared.made_by_defaults),
    Check("a model that is not fitted says so in one sentence, by an InputError", declared.not_fitted),
    Check("the constructor refuses wrong settings by an InputError", declared.settings_checked),
    Check("settings come back from JSON as they were", declared.settings_in_json),
    Check("every search range goes upwards within the values that are allowed", declared.search_ranges),
    Check("dataclasses.replace gives an equal model that has learned nothing", declared.copied),
    Check("a model can be sent to another process", declared.pickled),
    Check("fit returns the model itself", fits.returns_itself),
    Check("fit changes no setting", fits.settings_stay),
    Check("scores are an array of the shape (users, items), also of one user or none", fits.shape),
    Check("scores are float32", fits.float32),
    Check("scores are numbers, or -inf for what is never recommended", fits.finite),
    Check("a user's scores depend on that user's history alone", fits.user_alone),
    Check("lists that the model finds by itself have unseen items with the scores of score()", fits.found),
    Check("the caller may overwrite the scores and the model stays the same", fits.overwritten),
    Check("several threads that score at once get what one gets", fits.threads),
    Check("fit and score leave what they are given as it is", fits.inputs_stay),
    Check("the same seed gives the same scores, as a number or as a generator", fits.same_seed),
    Check("the fit of one model leaves another as it is", fits.fits_apart),
    Check("fitting again gives what a fresh model gives", fits.refit),
    Check("epochs() yields Epochs or nothing, and fits as fit does", fits.epochs),
    Check("fit needs neither validation users nor a seed", fits.train_alone),
    Check("a user without history has sound scores", fits.empty_history),
    Check("a user who has everything has sound scores", fits.full_history),
    Check("a model that reads signals fits and scores with them, and scores without them", fits.signals),
    Check("fit and score leave signals as they are", fits.signals_stay),
    Check("an item that nobody has in training breaks nothing", fits.unseen_item),
    Check("a training user who has nothing breaks nothing", fits.user_without_items),
    Check("three training users are enough", fits.few_users),
    Check("one training user is enough", fits.one_user),
    Check("one item is enough", fits.one_item),
    Check("what the fit chose goes into JSON, and settled() needs no validation users", declared.chosen),
    Check("state() holds arrays of finite numbers", declared.state),
    Check("a saved model scores as before, bit by bit", declared.saved),
    Check("seconds() is None or a number of at least 0", declared.seconds),
    Check("economical() returns a model of the same class and changes none", declared.economical),
    Check("the item withheld from a checkerboard ranks first", fits.learns_tastes, contract=False),
)
