"""Checkpoints: the state of a training in one safetensors file, to resume it with the same result."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from recfusion.core.errors import InputError
from recfusion.core.files import replacing

_FORMAT = "1"
_NUMBERS = ("epoch", "best_epoch", "best_metric")


@dataclass
class TrainState:
    """A network in training, with its optimizer, random state and best weights."""

    net: nn.Module
    optimizer: torch.optim.Optimizer
    rng: torch.Generator
    epoch: int = 0
    best_epoch: int = 0
    best_metric: float = float("-inf")
    best: dict[str, Tensor] = field(init=False)  # the weights of the best epoch

    def __post_init__(self) -> None:
        self.keep_best(self.best_metric)

    def keep_best(self, metric: float) -> None:
        self.best_epoch, self.best_metric = self.epoch, metric
        self.best = {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}


def save_checkpoint(path: Path, state: TrainState, run: str) -> None:
    """Write the state; `run` identifies the training, and a different run refuses to resume from it."""
    tensors = {f"net.{name}": tensor.contiguous() for name, tensor in state.net.state_dict().items()}
    tensors |= {f"best.{name}": tensor.contiguous() for name, tensor in state.best.items()}
    for index, slots in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{slot}": torch.as_tensor(value) for slot, value in slots.items()}
    tensors["rng"] = state.rng.get_state()
    numbers = {name: getattr(state, name) for name in _NUMBERS}
    with replacing(path) as beside:
        save_file(tensors, beside, {"format": _FORMAT, "run": run, "numbers": json.dumps(numbers)})


def load_checkpoint(path: Path, state: TrainState, run: str) -> None:
    """Load a saved state into `state`, a new one of the same run."""
    try:
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.get("format") != _FORMAT or about.get("run") != run:
            raise InputError(
                f"The checkpoint '{path}' belongs to another run (other data, model, settings or seed): "
                "use the same ones, or remove the file to start again."
            )
        state.net.load_state_dict(_below(tensors, "net."))
        state.best = _below(tensors, "best.")
        _restore_optimizer(state.optimizer, _below(tensors, "optimizer."))
        state.rng.set_state(tensors["rng"])
        numbers = json.loads(about["numbers"])
        state.epoch, state.best_epoch, state.best_metric = (numbers[name] for name in _NUMBERS)
    except InputError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        kind = type(error).__name__
        raise InputError(f"The checkpoint '{path}' is damaged ({kind}): remove it to start again.") from None


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _restore_optimizer(optimizer: torch.optim.Optimizer, slots: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in slots.items():
        index, slot = name.split(".", 1)
        state.setdefault(int(index), {})[slot] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
