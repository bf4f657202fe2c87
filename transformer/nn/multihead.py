"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): over the sequence itself, and over a memory."""

from torch import Tensor, nn

from transformer.nn.attention import Attended, Backend, attention
from transformer.nn.cache import KeyValueCache
from transformer.nn.config import checked_head_size
from transformer.nn.memory import MemoryCache
from transformer.nn.norm import HeadNorm
from transformer.nn.positions import NO_SIGNALS, PositionSignals, rotate


def split_heads(x_BLD: Tensor, num_heads: int) -> Tensor:
    """(B, L, H*E) to (B, H, L, E): first view, then transpose; a direct reshape would mix time with heads."""
    return x_BLD.view(*x_BLD.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x_BHLE: Tensor) -> Tensor:
    """(B, H, L, E) to (B, L, H*E), the inverse of :func:`split_heads`."""
    return x_BHLE.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself, with one fused projection for queries, keys and values.

    Args:
        d_model: width of the input and the output.
        num_heads: query heads; must divide ``d_model``.
        num_kv_heads: key and value heads: ``num_heads`` (multi-head), 1 (multi-query) or a divisor between
            (grouped-query attention, Ainslie et al. 2023).
        bias: whether the projections have biases.
        qk_norm: RMS-normalise each query and key head before the dot product (Henry et al. 2020).
        dropout: probability of dropping an attention weight during training.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int, *, bias: bool, qk_norm: bool, dropout: float
    ) -> None:
        super().__init__()
        head_size = checked_head_size(d_model, num_heads, num_kv_heads)
        self.num_heads, self.num_kv_heads, self.dropout = num_heads, num_kv_heads, dropout
        self.widths = (d_model, num_kv_heads * head_size, num_kv_heads * head_size)
        self.query_key_value = nn.Linear(d_model, sum(self.widths), bias=bias)
        self.query_norm = HeadNorm(head_size) if qk_norm else None
        self.key_norm = HeadNorm(head_size) if qk_norm else None
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        signals: PositionSignals = NO_SIGNALS,
        cache: KeyValueCache | None = None,
        backend: Backend = "fused",
    ) -> Attended:
        """Attend over this call's positions and, with a cache, over all earlier ones too. Returns (B, L, D)."""
        query_BLD, key_BLD, value_BLD = self.query_key_value(x_BLD).split(self.widths, dim=-1)
        query_BHLE = split_heads(query_BLD, self.num_heads)
        key_BGLE = split_heads(key_BLD, self.num_kv_heads)
        value_BGLE = split_heads(value_BLD, self.num_kv_heads)
        if self.query_norm is not None and self.key_norm is not None:
            query_BHLE, key_BGLE = self.query_norm(query_BHLE), self.key_norm(key_BGLE)
        if signals.rotation is not None:
            query_BHLE, key_BGLE = rotate(query_BHLE, signals.rotation), rotate(key_BGLE, signals.rotation)
        if cache is not None:
            key_BGLE, value_BGLE = cache.append(key_BGLE, value_BGLE)
        attended = attention(
            query_BHLE,
            key_BGLE,
            value_BGLE,
            mask=mask,
            causal=causal,
            bias=signals.bias_BHQK,
            dropout=self.dropout if self.training else 0.0,
            backend=backend,
        )
        return Attended(self.output(merge_heads(attended.output)), attended.weights)


class CrossAttention(nn.Module):
    """Multi-head attention of a target over a memory of another length, keys and values in one fused projection.

    Arguments as for :class:`SelfAttention`.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int, *, bias: bool, qk_norm: bool, dropout: float
    ) -> None:
        super().__init__()
        head_size = checked_head_size(d_model, num_heads, num_kv_heads)
        self.num_heads, self.num_kv_heads, self.dropout = num_heads, num_kv_heads, dropout
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key_value = nn.Linear(d_model, 2 * num_kv_heads * head_size, bias=bias)
        self.query_norm = HeadNorm(head_size) if qk_norm else None
        self.key_norm = HeadNorm(head_size) if qk_norm else None
        self.output = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor,
        *,
        mask: Tensor | None = None,
        cache: MemoryCache | None = None,
        backend: Backend = "fused",
    ) -> Attended:
        """Queries from ``x_BTD``, keys and values from ``memory_BSD``.

        With a cache, the memory is projected once; and where the cache says that several rows (of one query each) look
        at the same memory, they are queries of one attention, so that no keys and values are copied for each row.

        Raises:
            ValueError: rows that share a memory have several queries each.
        """
        query_BTD, shared = self.query(x_BTD), None if cache is None else cache.shared
        if shared is not None:
            if query_BTD.shape[1] != 1:
                raise ValueError(
                    f"rows that share a memory must have one query each, but have {query_BTD.shape[1]}: decode the "
                    "tokens one by one."
                )
            query_BTD = shared.gather(query_BTD[:, 0])
        query_BHTE = split_heads(query_BTD, self.num_heads)
        if self.query_norm is not None:
            query_BHTE = self.query_norm(query_BHTE)
        if cache is None:
            key_BGSE, value_BGSE = self._project(memory_BSD)
        else:
            if cache.key_NHSE is None or cache.value_NHSU is None:
                cache.key_NHSE, cache.value_NHSU = (part.contiguous() for part in self._project(memory_BSD))
            key_BGSE, value_BGSE = cache.key_NHSE, cache.value_NHSU
        attended = attention(
            query_BHTE,
            key_BGSE,
            value_BGSE,
            mask=mask,
            dropout=self.dropout if self.training else 0.0,
            backend=backend,
        )
        output_BTD, weights = merge_heads(attended.output), attended.weights
        if shared is not None:
            output_BTD = shared.scatter(output_BTD)[:, None]
            if weights is not None:
                heads, source_length = weights.shape[1], weights.shape[3]
                weights = shared.scatter(weights.transpose(1, 2).flatten(2)).view(-1, heads, 1, source_length)
        return Attended(self.output(output_BTD), weights)

    def _project(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        key_BSD, value_BSD = self.key_value(memory_BSD).chunk(2, dim=-1)
        key_BGSE = split_heads(key_BSD, self.num_kv_heads)
        return key_BGSE if self.key_norm is None else self.key_norm(key_BGSE), split_heads(value_BSD, self.num_kv_heads)
