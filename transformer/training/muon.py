"""Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for everything else, as one optimizer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from transformer.nn.bfloat16 import computes_bf16

# One step of the iteration is X <- a X + (b A + c A^2) X with A = X X^T: each singular value s becomes
# a s + b s^3 + c s^5. These make small ones grow the fastest among those that keep large ones between 0.68 and 1.21.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5


class Muon(Optimizer):
    """Updates of matrices are the nearest matrices with equal singular values to their momentum.

    For a matrix W (out, in) with gradient G: ``M = mu M + (1 - mu) G``, ``U = orthogonal((1 - mu) G + mu M)``
    (Nesterov), ``W = W - lr (sqrt(max(1, out / in)) U + weight_decay W)``. Matrices of one shape go through the
    iteration together. A fused projection is orthogonalised part by part, as if its parts stood alone.

    Not ``torch.optim.Muon``: that takes matrices one by one, in bfloat16 also where it is emulated, knows nothing of
    fused projections, and would leave the other parameters to a second optimizer, which Lightning refuses.

    Args:
        matrices: parameters of two dimensions, each with the row counts of its parts; (out,) for a plain one.
        others: parameter groups of AdamW, each with its own learning rate.
        learning_rate, momentum, weight_decay: of the matrices.
        betas, eps: of AdamW.
        fused: whether AdamW uses its fused kernel.
    """

    def __init__(
        self,
        matrices: Sequence[tuple[Tensor, tuple[int, ...]]],
        others: list[dict[str, Any]],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
        fused: bool,
    ) -> None:
        group = {
            "params": [matrix for matrix, _ in matrices],
            "parts": [list(parts) for _, parts in matrices],
            "lr": learning_rate,
            "momentum": momentum,
            "weight_decay": weight_decay,
        }
        super().__init__([group], {})
        self._adamw = AdamW(others, betas=betas, eps=eps, fused=fused)
        self.param_groups += self._adamw.param_groups
        self._share()

    def _share(self) -> None:
        """Let AdamW work on this optimizer's own groups and state: schedules and checkpoints then know only one."""
        self._adamw.param_groups = self.param_groups[1:]
        self._adamw.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of all parameters that have a gradient; ``closure``, if any, computes them first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update_matrices()
        self._adamw.step()
        return loss

    def _update_matrices(self) -> None:
        group = self.param_groups[0]
        parts = [rows for matrix, rows in zip(group["params"], group["parts"], strict=True) if matrix.grad is not None]
        matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
        if not matrices:
            return  # every layer was skipped
        gradients = [matrix.grad for matrix in matrices]
        for matrix in matrices:
            if "momentum" not in self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        momenta = [self.state[matrix]["momentum"] for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])
        if group["weight_decay"] > 0:
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        by_shape: dict[torch.Size, tuple[list[Tensor], list[Tensor]]] = {}
        for matrix, update, rows in zip(matrices, updates, parts, strict=True):
            for weight, part in zip(torch.split(matrix, rows), torch.split(update, rows), strict=True):
                same = by_shape.setdefault(part.shape, ([], []))
                same[0].append(weight)
                same[1].append(part)
        for (rows, columns), (weights, same_updates) in by_shape.items():
            orthogonal = orthogonalize(torch.stack(same_updates))
            scale = max(1.0, rows / columns) ** 0.5
            torch._foreach_add_(weights, orthogonal.unbind(), alpha=-group["lr"] * scale)


def orthogonalize(matrices_NRC: Tensor) -> Tensor:
    """Matrices with the same singular vectors and singular values near 1, by the Newton-Schulz iteration.

    The iteration starts from X over the fourth root of the Frobenius norm of (X X^T)^2, which is
    (sum of s^8)^(1/8) of the singular values s: at least the largest, as it must be, and much nearer to it than the
    Frobenius norm of X, so that small ones start higher. The first step computes that product anyway.

    Args:
        matrices_NRC: N matrices of R rows and C columns.

    Returns:
        The same shape and dtype. Singular values above 0.006 of the largest are between 0.65 and 1.21, smaller ones
        below. The products run in bfloat16 where the device has it, else in float32.
    """
    is_tall = matrices_NRC.shape[1] > matrices_NRC.shape[2]
    x = matrices_NRC.mT if is_tall else matrices_NRC  # the product with the transpose is the smaller way round
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(1e-7)  # in the matrices' own precision
    x = x.to(torch.bfloat16 if computes_bf16(x.device) else torch.float32)
    square = x @ x.mT
    fourth = square @ square
    scale = (1 / torch.linalg.matrix_norm(fourth.float(), keepdim=True).clamp_min(1e-28) ** 0.25).to(x.dtype)
    polynomial = B * scale**2 * square + C * scale**4 * fourth
    # Squares hold a singular value to twice the digits of the value itself, for which bfloat16 has too few.
    if x.dtype == torch.float32 and x.shape[2] >= 2 * x.shape[1]:
        x = _product_of_steps(scale**2 * square, polynomial) @ (x * scale)
    else:
        x = _iterate(x * scale, polynomial)
    return (x.mT if is_tall else x).to(matrices_NRC.dtype)


def _iterate(x_NRC: Tensor, polynomial_NRR: Tensor) -> Tensor:
    """All steps, the first with its polynomial ``b A + c A^2`` given."""
    x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=A)
    for _ in range(STEPS - 1):
        square_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=B, alpha=C)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=A)
    return x_NRC


def _product_of_steps(square_NRR: Tensor, polynomial_NRR: Tensor) -> Tensor:
    """What all steps together multiply X by: each is a polynomial P of the square A, after which the square is P A P.

    No product is of X itself, which makes about half of the operations where X is wide.
    """
    polynomial_NRR.diagonal(dim1=1, dim2=2).add_(A)
    product_NRR = polynomial_NRR
    for _ in range(STEPS - 1):
        square_NRR = polynomial_NRR @ (polynomial_NRR @ square_NRR)
        polynomial_NRR = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=B, alpha=C)
        polynomial_NRR.diagonal(dim1=1, dim2=2).add_(A)
        product_NRR = polynomial_NRR @ product_NRR
    return product_NRR
