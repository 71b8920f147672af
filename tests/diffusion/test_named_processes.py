"""Processes by name."""

from typing import get_args

import pytest
import torch

from recfusion.core.errors import InputError
from recfusion.diffusion import Binomial, Gaussian, ProcessName, make_process, make_schedule

SCHEDULE = make_schedule("linear", 3, 0.1, 0.5)


@pytest.mark.parametrize("name", get_args(ProcessName))
def test_every_name_makes_its_process(name: ProcessName) -> None:
    made = make_process(name, SCHEDULE, 0.3, variance="beta", predicts="previous")
    assert made.T == 3
    if name == "gaussian":
        assert isinstance(made, Gaussian)
        assert made.variance == "beta"
    else:
        assert isinstance(made, Binomial)
        assert made.predicts == "previous"
        own = getattr(Binomial, name.replace("-", "_"))(SCHEDULE, 0.3)
        x0 = torch.tensor([[0.0, 1.0]])
        assert torch.equal(made.q_marginal(x0, 2).mean, own.q_marginal(x0, 2).mean)


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(InputError, match="Unknown process 'pink': choose one of gaussian, paper-kernel"):
        make_process("pink", SCHEDULE)  # type: ignore[arg-type]
