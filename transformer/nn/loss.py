"""Label-smoothed cross-entropy of a vocabulary projection, without ever holding all its logits."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU_CHUNK_ELEMENTS = 1 << 24  # logits alive at a time: 64 MiB in float32
GPU_CHUNK_ELEMENTS = 1 << 26  # 256 MiB: enough work for each launch
HALF_SCALE = 1024.0  # keeps the gradient of an improbable token above float16's smallest number


class LossSum(NamedTuple):
    """A sum over tokens and their count; dividing is left to whoever knows all micro-batches and ranks.

    Attributes:
        loss: sum of the label-smoothed loss, in nats; the training objective.
        nll: sum of the plain negative log-likelihood, in nats; what is reported, also as perplexity. No gradient.
        num_tokens: number of scored tokens, int64.
    """

    loss: Tensor
    nll: Tensor
    num_tokens: Tensor


def cross_entropy(
    hidden_BLD: Tensor,
    weight_VD: Tensor,
    labels_BL: Tensor,
    scored_BL: Tensor,
    *,
    label_smoothing: float = 0.0,
    chunk_elements: int | None = None,
) -> LossSum:
    """Loss of predicting ``labels_BL`` from ``hidden_BLD @ weight_VD.T``, summed over the positions to score.

    With smoothing e, the target distribution is ``1 - e`` on the label plus ``e / V`` on every class, the label
    included (Szegedy et al. 2016; torch's own ``label_smoothing``).

    Args:
        hidden_BLD: final hidden states.
        weight_VD: the output projection.
        labels_BL: the right next tokens; anything, such as -100, where not scored.
        scored_BL: bool, True where the label counts. Padding is decided here, never by comparing ids.
        label_smoothing: e above.
        chunk_elements: upper bound on logits held at once (at least one row of them); default: by the device.

    Softmax and sums are in float32, or float64 for float64 input. Gradients are computed along with the loss, chunk by
    chunk, so that no chunk of logits is computed twice; a second derivative is not available.
    """
    if scored_BL.dtype != torch.bool or not (scored_BL.shape == labels_BL.shape == hidden_BLD.shape[:-1]):
        raise ValueError(
            f"labels and the bool mask of scored positions must have the shape {tuple(hidden_BLD.shape[:-1])} of "
            f"the hidden states, but have {tuple(labels_BL.shape)} and {tuple(scored_BL.shape)} ({scored_BL.dtype})."
        )
    # Rows that do not count are computed and weighted with zero: picking the others would wait for the device.
    hidden_ND, scored_N = hidden_BLD.flatten(0, -2), scored_BL.flatten()
    labels_N = labels_BL.flatten().masked_fill(~scored_N, 0)
    if chunk_elements is None:
        chunk_elements = GPU_CHUNK_ELEMENTS if hidden_BLD.is_cuda else CPU_CHUNK_ELEMENTS
    if not torch.is_grad_enabled():
        # The inputs still say that they need gradients: the function below would compute them for nothing.
        hidden_ND, weight_VD = hidden_ND.detach(), weight_VD.detach()
    loss, nll = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, labels_N, scored_N, label_smoothing, chunk_elements
    )
    return LossSum(loss, nll, scored_N.sum())


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        labels_N: Tensor,
        scored_N: Tensor,
        smoothing: float,
        chunk_elements: int,
    ) -> tuple[Tensor, Tensor]:
        vocab_size = weight_VD.shape[0]
        product = product_dtype(hidden_ND)
        product_weight_VD = weight_VD.to(product)  # once, not for every chunk
        accumulate = torch.promote_types(hidden_ND.dtype, torch.float32)
        # The uniform part of the target is the same for every position, so all it needs of the logits is their mean,
        # and its gradient is of rank one: neither ever touches a chunk of logits.
        mean_weight_D = weight_VD.to(accumulate).mean(0)
        loss = torch.zeros((), dtype=accumulate, device=hidden_ND.device)
        nll = torch.zeros_like(loss)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden_ND = torch.empty_like(hidden_ND) if need_hidden else None
        grad_weight_VD = torch.zeros_like(weight_VD) if need_weight else None
        rows = max(1, chunk_elements // vocab_size)
        for start in range(0, hidden_ND.shape[0], rows):
            chunk_CD, labels_C = hidden_ND[start : start + rows].to(product), labels_N[start : start + rows, None]
            scored_C = scored_N[start : start + rows, None]
            logits_CV = F.linear(chunk_CD, product_weight_VD).to(accumulate)
            label_C = logits_CV.gather(1, labels_C)
            highest_C = logits_CV.amax(-1, keepdim=True)
            exponentials_CV = logits_CV.sub_(highest_C).exp_()
            total_C = exponentials_CV.sum(-1, keepdim=True)
            nll_C = highest_C + total_C.log() - label_C
            nll += nll_C.masked_fill(~scored_C, 0).sum()
            if smoothing > 0:
                mean_C = nll_C + label_C - (chunk_CD * mean_weight_D).sum(-1, keepdim=True)
                nll_C = (1 - smoothing) * nll_C + smoothing * mean_C
            loss += nll_C.masked_fill(~scored_C, 0).sum()
            if need_hidden or need_weight:
                # d loss / d logits = softmax - target distribution; here times the row's total, which is divided out of
                # the products below, where it is a number for each row and not for each logit.
                grad_CV = exponentials_CV.scatter_add_(1, labels_C, (smoothing - 1) * total_C)
                share_C, scale = scored_C / total_C, 1.0
                if product == torch.float16:  # whose range would be too small for what is divided out later
                    grad_CV.mul_(HALF_SCALE / total_C)
                    share_C, scale = scored_C.to(accumulate), HALF_SCALE
                grad_CV = grad_CV.to(product)
                if grad_hidden_ND is not None:
                    grad_hidden_CD = (grad_CV @ product_weight_VD).to(accumulate) * (share_C / scale)
                    grad_hidden_ND[start : start + rows] = grad_hidden_CD - smoothing * mean_weight_D * scored_C
                if grad_weight_VD is not None:
                    shared_CD = chunk_CD.to(accumulate) * share_C
                    if product == accumulate == grad_weight_VD.dtype:
                        grad_weight_VD.addmm_(grad_CV.T, shared_CD)
                    else:
                        grad_weight_VD += summed_over_rows(grad_CV, shared_CD) / scale
                    if smoothing > 0:
                        grad_weight_VD -= smoothing / vocab_size * (chunk_CD * scored_C).sum(0, dtype=accumulate)
        ctx.save_for_backward(grad_hidden_ND, grad_weight_VD)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return (
            None if grad_hidden_ND is None else grad_hidden_ND * grad_loss,
            None if grad_weight_VD is None else grad_weight_VD * grad_loss,
            None,
            None,
            None,
            None,
        )


def summed_over_rows(grad_RV: Tensor, hidden_RD: Tensor) -> Tensor:
    """``grad_RV.T @ hidden_RD`` in the precision of the first; in float32 for those of 16 bits.

    Products of float16 add up in float32, but their result is float16 again, which ends at 65,504: the rows of a
    frequent label alone can exceed that. So they are made small before, by as much as the largest sum could be.
    """
    if grad_RV.dtype != torch.float16:
        return (grad_RV.T @ hidden_RD.to(grad_RV.dtype)).to(torch.promote_types(grad_RV.dtype, torch.float32))
    largest, hidden_RD = torch.linalg.vector_norm(grad_RV, torch.inf, dtype=torch.float32), hidden_RD.float()
    bound: Tensor = len(grad_RV) * largest * torch.linalg.vector_norm(hidden_RD, torch.inf)
    divisor = (bound / 2**15).clamp_min(1.0)
    return (grad_RV.T @ (hidden_RD / divisor).half()).float() * divisor


def product_dtype(hidden_ND: Tensor) -> torch.dtype:
    """The precision matrix products run in here: autocast's where it is on, else the tensor's own."""
    device = hidden_ND.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_ND.dtype
