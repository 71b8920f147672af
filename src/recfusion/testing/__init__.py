"""The contract of `Recommender` as named checks, for your own models.

`check_recommender(MyModel())` runs all of them; `checks()` lists them, to write a test for each.
"""

from recfusion.testing.contract import Check, ContractError, check_recommender, checks
from recfusion.testing.sample_data import Subject, tastes

__all__ = ["Check", "ContractError", "Subject", "check_recommender", "checks", "tastes"]
