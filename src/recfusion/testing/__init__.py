"""The contract of `Recommender` as named checks, which anybody can run on a model of their own.

`check_recommender(MyModel())` runs all of them; `checks()` lists them, for a test each.
"""

from recfusion.testing.contract import Check, ContractError, check_recommender, checks
from recfusion.testing.sample_data import Subject, tastes

__all__ = ["Check", "ContractError", "Subject", "check_recommender", "checks", "tastes"]
