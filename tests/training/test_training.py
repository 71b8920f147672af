"""Training: seeds, early stopping, checkpoints, and losses that blow up."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.training.batches import dense, seeded, shuffled_batches, torch_rng
from recfusion.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from recfusion.training.epoch import Checkpoint
from recfusion.training.loop import Phase, Validate, fit_epochs

TRAIN = random_csr(30, 8, 0.4, 0)


def make_state(seed: int = 0) -> TrainState:
    rng = torch.Generator().manual_seed(seed)
    net = seeded(lambda: nn.Linear(8, 8), rng)
    return TrainState(net, torch.optim.AdamW(net.parameters(), lr=0.01), rng)


def run(
    state: TrainState,
    epochs: int,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
    min_improvement: float = 0.0,
) -> int:
    """Train for some epochs and return how many there were."""

    def loss(rows: Csr) -> Tensor:
        x = dense(rows)
        noise = torch.rand(x.shape, generator=state.rng)
        return ((state.net(x * (noise < 0.8)) - x) ** 2).mean()

    steps = fit_epochs(
        state, [Phase(loss)], TRAIN, validate, batch_size=7, max_epochs=epochs, patience=3,
        learning_rate=lambda _: 0.01, checkpoint=checkpoint, min_improvement=min_improvement,
    )  # fmt: skip
    return len(list(steps))


def test_an_improvement_that_is_too_small_keeps_no_weights_and_does_not_prolong_training() -> None:
    state = make_state()
    metrics = iter([0.1, 0.5, 0.55, 0.58, 0.6, 0.9])
    kept: list[Tensor] = []

    def validate() -> float:
        kept.append(weights(state))
        return next(metrics)

    assert run(state, 100, validate, min_improvement=0.1) == 5
    assert (state.best_epoch, state.best_metric) == (2, 0.5)
    assert torch.equal(weights(state), kept[1])


def weights(state: TrainState) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in state.net.parameters()])


def test_a_pass_sees_every_user_once_in_a_random_order() -> None:
    rng = torch.Generator().manual_seed(1)
    seen = [rows.toarray() for rows in shuffled_batches(TRAIN, 7, rng)]
    assert [len(rows) for rows in seen] == [6, 6, 6, 6, 6]
    together = np.concatenate(seen)
    assert sorted(map(tuple, together)) == sorted(map(tuple, TRAIN.toarray()))
    assert (together != TRAIN.toarray()).any()


def test_the_same_seed_gives_the_same_weights() -> None:
    one, two, other = make_state(1), make_state(1), make_state(2)
    for state in (one, two, other):
        run(state, 3)
    assert torch.equal(weights(one), weights(two))
    assert not torch.equal(weights(one), weights(other))


def test_building_a_net_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    seeded(lambda: nn.Linear(3, 3), torch_rng(np.random.default_rng(0)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_training_stops_after_patience_and_keeps_the_best_weights() -> None:
    state = make_state()
    metrics = iter([0.1, 0.5, 0.2, 0.3, 0.4, 0.9])
    kept: list[Tensor] = []

    def validate() -> float:
        kept.append(weights(state))
        return next(metrics)

    assert run(state, 100, validate) == 5
    assert state.best_epoch == 2
    assert torch.equal(weights(state), kept[1])


@pytest.mark.parametrize("stop", [1, 4])
def test_an_interrupted_training_goes_on_to_the_same_result(tmp_path: Path, stop: int) -> None:
    whole = make_state()
    run(whole, 6, lambda: whole.epoch / 10)

    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "this run")
    broken = make_state()

    def interrupted() -> float:
        if broken.epoch > stop:
            raise KeyboardInterrupt
        return broken.epoch / 10

    with pytest.raises(KeyboardInterrupt):
        run(broken, 6, interrupted, checkpoint)
    assert checkpoint.path.exists()
    resumed = make_state()
    assert run(resumed, 6, lambda: resumed.epoch / 10, checkpoint) == 6 - stop
    assert torch.equal(weights(resumed), weights(whole))
    assert not checkpoint.path.exists()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", make_state(), "one")
    with pytest.raises(InputError, match="belongs to another run"):
        load_checkpoint(tmp_path / "c", make_state(), "two")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", make_state(), "one")
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:50])
    with pytest.raises(InputError, match="is damaged"):
        load_checkpoint(tmp_path / "c", make_state(), "one")


def exploding(state: TrainState, last_good: int) -> Validate:
    def validate() -> float:
        if state.epoch == last_good:
            state.net.weight.register_hook(lambda grad: grad * float("nan"))  # type: ignore[operator]
        return state.epoch / 10

    return validate


def test_a_loss_that_is_no_number_ends_training_with_the_last_good_weights(caplog: pytest.LogCaptureFixture) -> None:
    state = make_state()
    assert run(state, 50, exploding(state, 2)) == 2
    assert not weights(state).isnan().any()
    assert "in epoch 3" in caplog.text
    assert "The weights of epoch 2 are used" in caplog.text


def test_a_loss_that_is_no_number_in_the_first_epoch_is_an_error() -> None:
    state = make_state()
    state.net.weight.data.fill_(float("nan"))  # type: ignore[operator]
    with pytest.raises(InputError, match="in epoch 1"):
        run(state, 5)
