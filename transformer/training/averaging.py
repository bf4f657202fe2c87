"""The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1: the last 5)."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer.metrics.names import Direction
from transformer.training.checkpoints import LAST, load_checkpoint

MODEL = "model."  # before the names of a model's weights in a checkpoint


class WeightMean:
    """Adds up weights in float64, tied ones once, and gives their mean to a model.

    Args:
        model: gets the mean; says which weights there are, and of which shapes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.count = model, 0
        self._sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}

    def add(self, weights: Mapping[str, Tensor], where: str) -> None:
        """Add one model's weights.

        Args:
            weights: by name; tied ones under their first name at least.
            where: what to call them in an error.

        Raises:
            ValueError: names or shapes are not those of the model, or a weight is not finite.
        """
        known = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        unknown = sorted(weights.keys() - known)
        if unknown:
            raise ValueError(f"{where} holds `{unknown[0]}`, which the model does not have.")
        for name, total in self._sums.items():
            if name not in weights:
                raise ValueError(f"{where} lacks `{name}`, which the model has.")
            weight = weights[name].detach()
            if weight.shape != total.shape:
                raise ValueError(
                    f"`{name}` must have shape {tuple(total.shape)}, but has {tuple(weight.shape)} in {where}."
                )
            if not weight.isfinite().all():
                raise ValueError(f"`{name}` in {where} has values that are not finite.")
            total += weight
        self.count += 1

    def finish(self) -> None:
        """Give the model the mean."""
        assert self.count > 0
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self._sums[name] / self.count)


def latest_checkpoints(folder: Path, count: int) -> list[Path]:
    """The checkpoints of the last validations of a run, in order.

    They are those that the run's ``last.ckpt`` names: the folder may hold others of an earlier run.

    Args:
        folder: the run's checkpoints.
        count: how many.

    Raises:
        ValueError: there are fewer.
    """
    kept = _kept(folder, "step")
    found = sorted(kept, key=kept.__getitem__)
    if len(found) < count:
        raise ValueError(
            f"{folder} must have {count} checkpoints of the latest validations, but has {len(found)}; a run keeps as "
            "many as `checkpoint.keep_latest` says."
        )
    return found[-count:]


def best_checkpoints(folder: Path, count: int, monitor: str, direction: Direction) -> list[Path]:
    """The best checkpoints of a run, from the best on.

    Args:
        folder: the run's checkpoints.
        count: how many.
        monitor: the metric that decides, which is that of the run.
        direction: whether small or large is good.

    Raises:
        ValueError: there are fewer.
    """
    kept = _kept(folder, monitor)
    found = sorted(kept, key=kept.__getitem__, reverse=direction == "max")
    if len(found) < count:
        raise ValueError(
            f"{folder} must have {count} best checkpoints, but has {len(found)}; a run keeps as many as "
            "`checkpoint.keep_best` says."
        )
    return found[:count]


def average_checkpoints(model: nn.Module, paths: list[Path]) -> list[int]:
    """Give a model the mean of checkpoints' weights, which are read one after the other.

    Returns:
        The optimizer steps they are of.

    Raises:
        ValueError: a checkpoint cannot be read or is of another model.
    """
    mean, steps = WeightMean(model), []
    for path in paths:
        checkpoint = load_checkpoint(path)
        weights = checkpoint["state_dict"]
        mean.add({name.removeprefix(MODEL): weight for name, weight in weights.items()}, str(path))
        steps.append(int(checkpoint["global_step"]))
    mean.finish()
    return steps


def _kept(folder: Path, monitor: str) -> dict[Path, float]:
    """The checkpoints that a run has kept by a metric, or by the step, with its values, and that are still there."""
    callbacks = load_checkpoint(folder / LAST)["callbacks"].values()
    kept = [state["best_k_models"] for state in callbacks if state.get("monitor") == monitor]
    values = {folder / Path(path).name: float(value) for state in kept[:1] for path, value in state.items()}
    return {path: value for path, value in values.items() if path.is_file()}
