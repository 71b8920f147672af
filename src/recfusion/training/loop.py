"""The training loop: a generator of epochs with validation, early stopping, best weights and checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.core.files import check_writable_file
from recfusion.training.batches import shuffled_batches
from recfusion.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from recfusion.training.epoch import Checkpoint, Epoch

Validate = Callable[[], float]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Phase:
    """A pass over the training users with a loss of its own, in which one part of the net learns."""

    loss: Callable[[Csr], Tensor]  # a batch of users -> mean loss
    part: nn.Module | None = None  # None: all of it
    before: Callable[[], None] | None = None  # done once, as the phase begins


class DivergedError(InputError):
    """The loss is not a number any more; the weights of the last good epoch are kept."""


def fit_epochs(
    state: TrainState,
    phases: Sequence[Phase],
    train: Csr,
    validate: Validate | None,
    *,
    batch_size: int,
    max_epochs: int,
    patience: int,
    rate: Callable[[int], float],
    checkpoint: Checkpoint | None = None,
) -> Iterator[Epoch]:
    """Yield each epoch until `patience` epochs have brought nothing better; the best weights end up in the net.

    Without validation all `max_epochs` are run and the last weights are kept. A checkpoint that is already there is
    gone on from, to the same result as without the interruption; it is removed at the end. `rate` gives an epoch's
    learning rate.
    """
    if checkpoint is not None:
        check_writable_file(checkpoint.path)
        if checkpoint.path.exists():
            load_checkpoint(checkpoint.path, state, checkpoint.run)
    diverged: DivergedError | None = None
    while state.epoch < max_epochs and state.epoch - state.best_epoch < patience:
        start, epoch = time.perf_counter(), state.epoch + 1
        now = rate(epoch)
        for group in state.optimizer.param_groups:
            group["lr"] = now
        try:
            loss = train_epoch(
                state.net, state.optimizer, phases, train, batch_size=batch_size, rng=state.rng, epoch=epoch
            )
        except DivergedError as error:
            diverged = error
            break
        seconds, state.epoch = time.perf_counter() - start, epoch
        state.net.eval()
        metric = None if validate is None else validate()
        if metric is None or metric > state.best_metric:
            state.keep_best(-math.inf if metric is None else metric)
        if checkpoint is not None:
            save_checkpoint(checkpoint.path, state, checkpoint.run)
        best = None if metric is None else state.best_metric
        yield Epoch(epoch, max_epochs, loss, metric, best, state.best_epoch, seconds)
    state.net.load_state_dict(state.best)
    state.net.eval()
    if diverged is not None:
        if state.best_epoch == 0:
            raise diverged
        log.warning("%s The weights of epoch %d are kept.", diverged, state.best_epoch)
    if checkpoint is not None:
        checkpoint.path.unlink(missing_ok=True)


def train_epoch(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    phases: Sequence[Phase],
    train: Csr,
    *,
    batch_size: int,
    rng: torch.Generator,
    epoch: int,
) -> float:
    """Let every phase pass once over the rows of `train` in a random order; return the first one's mean loss."""
    means = []
    for phase in phases:
        net.train()
        if phase.before is not None:
            phase.before()
        learning = {id(parameter) for parameter in (phase.part or net).parameters()}
        resting = [p for p in net.parameters() if p.requires_grad and id(p) not in learning]
        for parameter in resting:  # an optimizer passes over parameters without a gradient
            parameter.requires_grad_(False)
        losses = []
        try:
            for rows in shuffled_batches(train, batch_size, rng):
                optimizer.zero_grad(set_to_none=True)
                loss = phase.loss(rows)
                losses.append(float(loss.detach()))
                if not math.isfinite(losses[-1]):
                    raise DivergedError(
                        f"The loss became NaN or infinite in epoch {epoch} and training stopped: lower the learning "
                        "rate (lr)."
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        finally:
            for parameter in resting:
                parameter.requires_grad_(True)
        means.append(sum(losses) / max(1, len(losses)))
    return means[0]
