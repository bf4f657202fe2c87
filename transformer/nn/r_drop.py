"""R-Drop (Liang et al. 2021, arXiv:2106.14448): two passes of a batch, under different dropout, are to agree."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.nn.loss import (
    CPU_CHUNK_ELEMENTS,
    GPU_CHUNK_ELEMENTS,
    HALF_SCALE,
    LossSum,
    product_dtype,
    summed_over_rows,
)


def r_drop_cross_entropy(
    hidden_PBLD: Tensor,
    weight_VD: Tensor,
    labels_BL: Tensor,
    scored_BL: Tensor,
    *,
    alpha: float,
    label_smoothing: float = 0.0,
    chunk_elements: int | None = None,
) -> LossSum:
    """Cross-entropy of two passes and the divergence of their predictions p1 and p2, summed over positions to score.

    For each position ``(CE1 + CE2) / 2 + alpha / 4 * (KL(p1 || p2) + KL(p2 || p1))``: half of the paper's sum, so that
    ``alpha`` means what it means there while the loss stays that of one pass.

    Args:
        hidden_PBLD: final hidden states of both passes (2, batch, length, d_model).
        weight_VD: the output projection.
        labels_BL: the right next tokens, of one pass; anything, such as -100, where not scored.
        scored_BL: bool, True where the label counts.
        alpha: weight of the divergence.
        label_smoothing: of the cross-entropy, as in :func:`transformer.nn.loss.cross_entropy`.
        chunk_elements: upper bound on logits held at once (at least those of one position); default: by the device.

    Returns:
        The sums of one pass: ``nll`` is the mean of both, and a token counts once.

    Precision, memory and gradients are those of :func:`transformer.nn.loss.cross_entropy`: nothing of the size
    B * L * V exists, and a second derivative is not available.
    """
    if scored_BL.dtype != torch.bool or not ((2, *scored_BL.shape) == (2, *labels_BL.shape) == hidden_PBLD.shape[:-1]):
        raise ValueError(
            "hidden states of two passes must have the shape (2, batch, length, d_model), their labels and the bool "
            f"mask of scored positions (batch, length), but have {tuple(hidden_PBLD.shape)}, "
            f"{tuple(labels_BL.shape)} and {tuple(scored_BL.shape)} ({scored_BL.dtype})."
        )
    hidden_PND, scored_N = hidden_PBLD.flatten(1, -2), scored_BL.flatten()
    labels_N = labels_BL.flatten().masked_fill(~scored_N, 0)
    if chunk_elements is None:
        chunk_elements = GPU_CHUNK_ELEMENTS if hidden_PBLD.is_cuda else CPU_CHUNK_ELEMENTS
    if not torch.is_grad_enabled():
        # The inputs still say that they need gradients: the function below would compute them for nothing.
        hidden_PND, weight_VD = hidden_PND.detach(), weight_VD.detach()
    loss, nll = _LinearRDrop.apply(  # type: ignore[no-untyped-call]
        hidden_PND, weight_VD, labels_N, scored_N, alpha, label_smoothing, chunk_elements
    )
    return LossSum(loss, nll, scored_N.sum())


class _LinearRDrop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_PND: Tensor,
        weight_VD: Tensor,
        labels_N: Tensor,
        scored_N: Tensor,
        alpha: float,
        smoothing: float,
        chunk_elements: int,
    ) -> tuple[Tensor, Tensor]:
        vocab_size = weight_VD.shape[0]
        product = product_dtype(hidden_PND)
        product_weight_VD = weight_VD.to(product)
        scale = HALF_SCALE if product == torch.float16 else 1.0
        accumulate = torch.promote_types(hidden_PND.dtype, torch.float32)
        loss = torch.zeros((), dtype=accumulate, device=hidden_PND.device)
        nll = torch.zeros_like(loss)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden_PND = torch.empty_like(hidden_PND) if need_hidden else None
        grad_weight_VD = torch.zeros_like(weight_VD) if need_weight else None
        rows = max(1, chunk_elements // (2 * vocab_size))
        for start in range(0, hidden_PND.shape[1], rows):
            chunk_PCD = hidden_PND[:, start : start + rows].to(product)
            labels_PC1 = labels_N[None, start : start + rows, None].expand(2, -1, -1)
            scored_C1 = scored_N[start : start + rows, None]
            log_PCV = F.linear(chunk_PCD, product_weight_VD).to(accumulate)
            log_PCV.sub_(log_PCV.logsumexp(-1, keepdim=True))
            nll_PC1 = -log_PCV.gather(2, labels_PC1)
            nll += nll_PC1.mean(0).masked_fill(~scored_C1, 0).sum()
            if smoothing > 0:
                nll_PC1 = (1 - smoothing) * nll_PC1 - smoothing * log_PCV.mean(-1, keepdim=True)
            probability_PCV = log_PCV.exp()
            # The logarithms are not needed any more: their place takes log(p1 / p2), and then p1 - p2.
            ratio_CV = log_PCV[0].sub_(log_PCV[1])
            product_CV = log_PCV[1]
            first_C1 = torch.mul(probability_PCV[0], ratio_CV, out=product_CV).sum(-1, keepdim=True)  # KL(p1 || p2)
            second_C1 = -torch.mul(probability_PCV[1], ratio_CV, out=product_CV).sum(-1, keepdim=True)  # KL(p2 || p1)
            objective_C1 = nll_PC1.mean(0) + alpha / 4 * (first_C1 + second_C1)
            loss += objective_C1.masked_fill(~scored_C1, 0).sum()
            if need_hidden or need_weight:
                # d KL(p1 || p2) / d z1 = p1 * (log(p1 / p2) - KL(p1 || p2)) and d KL(p2 || p1) / d z1 = p1 - p2.
                gap_CV = torch.sub(probability_PCV[0], probability_PCV[1], out=product_CV)
                quarter_CV = ratio_CV.mul_(alpha / 4)
                grad_PCV = probability_PCV
                grad_PCV[0].mul_(quarter_CV + (0.5 - alpha / 4 * first_C1)).add_(gap_CV, alpha=alpha / 4)
                grad_PCV[1].mul_((0.5 - alpha / 4 * second_C1) - quarter_CV).sub_(gap_CV, alpha=alpha / 4)
                if smoothing > 0:
                    grad_PCV.sub_(smoothing / (2 * vocab_size))
                grad_PCV.scatter_add_(2, labels_PC1, torch.full_like(nll_PC1, (smoothing - 1) / 2))
                grad_PCV = grad_PCV.mul_(scored_C1 * scale).to(product)
                if grad_hidden_PND is not None:
                    grad_hidden_PND[:, start : start + rows] = (grad_PCV @ product_weight_VD).to(accumulate) / scale
                if grad_weight_VD is not None:
                    grad_RV, chunk_RD = grad_PCV.flatten(0, 1), chunk_PCD.flatten(0, 1)
                    grad_weight_VD += summed_over_rows(grad_RV, chunk_RD) / scale
        ctx.save_for_backward(grad_hidden_PND, grad_weight_VD)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_PND, grad_weight_VD = ctx.saved_tensors
        return (
            None if grad_hidden_PND is None else grad_hidden_PND * grad_loss,
            None if grad_weight_VD is None else grad_weight_VD * grad_loss,
            None,
            None,
            None,
            None,
            None,
        )
