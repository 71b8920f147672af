"""The training loop: a generator of epochs with validation, early stopping and checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    """A pass over the training users with its own loss, in which one part of the network is trained."""

    loss: Callable[[Csr], Tensor]  # a batch of users -> mean loss
    part: nn.Module | None = None  # None: the whole network
    before: Callable[[], None] | None = None  # called once, at the start of the phase


class DivergedError(InputError):
    """The loss is NaN or infinite."""


def fit_epochs(
    state: TrainState,
    phases: Sequence[Phase],
    train: Csr,
    validate: Validate | None,
    *,
    batch_size: int,
    max_epochs: int,
    patience: int,
    min_improvement: float = 0.0,
    learning_rate: Callable[[int], float],
    checkpoint: Checkpoint | None = None,
) -> Iterator[Epoch]:
    """Train epoch by epoch, yield each epoch, and leave the best weights in the network.

    Training stops after `patience` epochs without a better validation metric. A metric is better if it exceeds the best
    one by more than `min_improvement`; only then are its weights kept. Without validation all `max_epochs` are
    run and the last weights are kept. If the checkpoint file exists, training resumes from it, with the same result as
    without the interruption; the file is removed at the end. `learning_rate` maps an epoch to its learning rate.
    """
    if checkpoint is not None:
        check_writable_file(checkpoint.path)
        if checkpoint.path.exists():
            load_checkpoint(checkpoint.path, state, checkpoint.run)
    diverged: DivergedError | None = None
    while state.epoch < max_epochs and state.epoch - state.best_epoch < patience:
        start, epoch = time.perf_counter(), state.epoch + 1
        rate = learning_rate(epoch)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        try:
            loss = train_epoch(state, phases, train, batch_size)
        except DivergedError as error:
            diverged = error
            break
        seconds, state.epoch = time.perf_counter() - start, epoch
        state.net.eval()
        metric = None if validate is None else validate()
        if metric is None or metric > state.best_metric + min_improvement:
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
        log.warning("%s The weights of epoch %d are used.", diverged, state.best_epoch)
    if checkpoint is not None:
        checkpoint.path.unlink(missing_ok=True)


def train_epoch(state: TrainState, phases: Sequence[Phase], train: Csr, batch_size: int) -> float:
    """Run every phase once over the rows of `train` in random order; return the mean loss of the first phase."""
    net, optimizer = state.net, state.optimizer
    means = []
    for phase in phases:
        net.train()
        if phase.before is not None:
            phase.before()
        learning = {id(parameter) for parameter in (phase.part or net).parameters()}
        frozen = [p for p in net.parameters() if p.requires_grad and id(p) not in learning]
        for parameter in frozen:  # an optimizer skips parameters without a gradient
            parameter.requires_grad_(False)
        losses = []
        try:
            for rows in shuffled_batches(train, batch_size, state.rng):
                optimizer.zero_grad(set_to_none=True)
                loss = phase.loss(rows)
                losses.append(float(loss.detach()))
                if not math.isfinite(losses[-1]):
                    raise DivergedError(
                        f"The loss became NaN or infinite in epoch {state.epoch + 1} and training stopped: lower the "
                        "learning rate (lr)."
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
        means.append(sum(losses) / max(1, len(losses)))
    return means[0]
