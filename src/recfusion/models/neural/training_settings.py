"""Declarations of the settings that networks share; a model chooses the default and the search range."""

from typing import Any

from recfusion.models.settings import setting


def lr(default: float, search: tuple[float, float] = (1e-4, 1e-2)) -> Any:
    return setting(default, "learning rate of AdamW", at_least=0, search=search, log=True)


def weight_decay(default: float, most: float = 6.0) -> Any:
    return setting(default, "weight decay of AdamW", at_least=0, search=(0.0, most))


def batch_size(default: int, search: tuple[int, int] = (50, 1000)) -> Any:
    doc = "users in a batch; fewer if an epoch would have less than ten batches"
    return setting(default, doc, at_least=1, search=search, log=True)


def max_epochs(default: int) -> Any:
    return setting(default, "largest number of epochs", at_least=1, at_most=100_000)


def patience(default: int) -> Any:
    return setting(default, "epochs without a better validation ndcg@100 before training stops", at_least=1)


def width(default: int, doc: str, search: tuple[int, int]) -> Any:
    return setting(default, doc, at_least=1, at_most=100_000, search=search, log=True)
