"""Driving the loop: validation after every epoch, early stopping, best weights, checkpoints."""

import logging
from collections.abc import Callable, Iterator, Sequence

from recfusion.core.arrays import Csr
from recfusion.core.files import check_writable_file
from recfusion.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from recfusion.training.epoch import Checkpoint, Epoch
from recfusion.training.loop import DivergedError, Phase, train_epochs

Validate = Callable[[], float]
log = logging.getLogger(__name__)


def fit_epochs(
    state: TrainState,
    phases: Sequence[Phase],
    train: Csr,
    validate: Validate | None,
    *,
    batch_size: int,
    max_epochs: int,
    patience: int,
    checkpoint: Checkpoint | None = None,
    rate: Callable[[int], float] | None = None,
) -> Iterator[Epoch]:
    """Yield each epoch until `patience` epochs have brought nothing better; the best weights end up in the net.

    Without validation all `max_epochs` are run and the last weights are kept. A checkpoint that is already there is
    gone on from, to the same result as without the interruption; it is removed at the end.
    """
    if checkpoint is not None:
        check_writable_file(checkpoint.path)
        if checkpoint.path.exists():
            load_checkpoint(checkpoint.path, state, checkpoint.run)
    first = state.epoch + 1
    passes = train_epochs(
        state.net, state.optimizer, phases, train, batch_size=batch_size, rng=state.rng, first=first, rate=rate
    )
    diverged: DivergedError | None = None
    while state.epoch < max_epochs and state.epoch - state.best_epoch < patience:
        try:
            done = next(passes)
        except DivergedError as error:
            diverged = error
            break
        state.epoch = done.epoch
        metric = None if validate is None else _validated(state, validate)
        if metric is None:
            state.keep_best(float("-inf"))
        elif metric > state.best_metric:
            state.keep_best(metric)
        if checkpoint is not None:
            save_checkpoint(checkpoint.path, state, checkpoint.run)
        best = None if metric is None else state.best_metric
        yield Epoch(done.epoch, max_epochs, done.loss, metric, best, state.best_epoch, done.seconds)
    state.net.load_state_dict(state.best)
    state.net.eval()
    if diverged is not None:
        if state.best_epoch == 0:
            raise diverged
        log.warning("%s The weights of epoch %d are kept.", diverged, state.best_epoch)
    if checkpoint is not None:
        checkpoint.path.unlink(missing_ok=True)


def _validated(state: TrainState, validate: Validate) -> float:
    state.net.eval()
    return validate()
