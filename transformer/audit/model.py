"""The calling convention of the audit: what it must know of a model, and what it may be told besides.

A plain causal language model, from token ids (B, L) to logits (B, L, V), needs no more than
``CausalLanguageModel(module, vocab_size=..., max_length=...)``. Every further field makes further checks possible; a
check that lacks what it needs is *not applicable*, and says why.

The audit works on copies of the module, so every function here takes the module as its first argument instead of
keeping one. Masks are bool, True = a real token.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

Side = Literal["left", "right"]


class Inputs(NamedTuple):
    """What a model reads: the target, or a language model's text, and the source of an encoder-decoder.

    Attributes:
        target_BT, target_mask_BT: ids, the decoder's input, and True for real ones.
        source_BS, source_mask_BS: the same for the source; None without an encoder.
    """

    target_BT: Tensor
    target_mask_BT: Tensor
    source_BS: Tensor | None = None
    source_mask_BS: Tensor | None = None


class ResidualBlock(NamedTuple):
    """A module around one or more sublayers, each in a residual connection.

    Attributes:
        name: for the report.
        module: takes the residual stream (B, L, D) as its first argument and returns it, alone or first in a tuple.
        outputs: weights and biases of the sublayers' output projections. While they are zero, the block does nothing:
            ``y = x``.
        untouched: what the block then makes of x instead, where norms follow the residuals (Post-Norm).
    """

    name: str
    module: nn.Module
    outputs: Sequence[nn.Parameter]
    untouched: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class CachedDecoding:
    """Decoding with cached keys and values. A state may be changed in place, but belongs to one session alone.

    Attributes:
        start: ``(module, source_BS, source_mask_BS, num_rows)`` gives the state of a new session; without an encoder,
            source and mask are None.
        step: ``(module, state, new_BN, mask_BN)``, one or more new tokens of each row, gives their logits (B, N, V) and
            the next state.
        select: ``(module, state, rows_M)`` gives a state of M rows, row m of which continues row ``rows_M[m]``, as a
            beam search does; None if there is no such thing.
    """

    start: Callable[[Any, Tensor | None, Tensor | None, int], Any]
    step: Callable[[Any, Any, Tensor, Tensor], tuple[Tensor, Any]]
    select: Callable[[Any, Any, Tensor], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class AuditedModel(ABC):
    """A module and how to call it.

    Attributes:
        module: what is audited. It is copied, and never changed.
        vocab_size: number V of ids that the logits are over.
        max_length: longest sequence, in tokens, on either side.
        pad_id: fills up rows.
        cache: decoding with cached keys and values, if there is any.
        residuals: the blocks around sublayers, from the input to the output.
        tied: groups of parameters' names that must be one and the same parameter.
        has_dropout: whether training drops anything; None looks at torch's own modules.
        build: makes the module anew, with other weights, to load saved ones into.
        fresh: whether the weights are initial ones, whose scale has a meaning.
    """

    module: nn.Module = field(kw_only=False)
    vocab_size: int
    max_length: int
    pad_id: int = 0
    cache: CachedDecoding | None = None
    residuals: Callable[[Any], Sequence[ResidualBlock]] | None = None
    tied: tuple[tuple[str, ...], ...] = ()
    has_dropout: bool | None = None
    build: Callable[[], nn.Module] | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (("vocab_size", self.vocab_size, 4), ("max_length", self.max_length, 4)):
            if value < least:
                raise ValueError(f"`{name}` must be at least {least} to be audited, but is {value}.")
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(f"`pad_id` must be from 0 to {self.vocab_size - 1}, but is {self.pad_id}.")
        names = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        for name in (name for group in self.tied for name in group):
            if name not in names:
                raise ValueError(f"`tied` names the parameter `{name}`, which the module does not have.")

    @abstractmethod
    def logits(self, inputs: Inputs) -> Tensor:
        """Logits (B, T, V) for the token after each target position."""

    @abstractmethod
    def loss(self, inputs: Inputs, scored_BT: Tensor) -> Tensor | None:
        """The training loss of predicting the scored ones of the target's tokens; None if it is not given."""

    @property
    @abstractmethod
    def source_size(self) -> int | None:
        """Number of source ids; None without an encoder."""

    @property
    @abstractmethod
    def source_sides(self) -> tuple[Side, ...]:
        """Where the source may be padded."""

    @property
    @abstractmethod
    def target_sides(self) -> tuple[Side, ...]:
        """Where the target may be padded. On the right, padding needs no mask: nothing real is behind it."""


@dataclass(frozen=True, kw_only=True)
class CausalLanguageModel(AuditedModel):
    """A decoder without an encoder.

    Attributes:
        call: ``(module, ids_BL)`` gives logits (B, L, V); by default ``module(ids_BL)``.
        masked_call: ``(module, ids_BL, mask_BL)``, for rows padded on the left; None if the model takes none.
        loss_call: ``(module, ids_BL, scored_BL)`` gives the training loss (without dropout), as a sum or as a mean, of
            predicting every scored token from those before it. It shifts ids to labels as training does.
    """

    call: Callable[[Any, Tensor], Tensor] = lambda module, ids_BL: module(ids_BL)
    masked_call: Callable[[Any, Tensor, Tensor], Tensor] | None = None
    loss_call: Callable[[Any, Tensor, Tensor], Tensor] | None = None

    def logits(self, inputs: Inputs) -> Tensor:
        if self.masked_call is None or bool(inputs.target_mask_BT.all()):
            return self.call(self.module, inputs.target_BT)
        return self.masked_call(self.module, inputs.target_BT, inputs.target_mask_BT)

    def loss(self, inputs: Inputs, scored_BT: Tensor) -> Tensor | None:
        return None if self.loss_call is None else self.loss_call(self.module, inputs.target_BT, scored_BT)

    @property
    def source_size(self) -> int | None:
        return None

    @property
    def source_sides(self) -> tuple[Side, ...]:
        return ()

    @property
    def target_sides(self) -> tuple[Side, ...]:
        return ("right",) if self.masked_call is None else ("right", "left")


@dataclass(frozen=True, kw_only=True)
class SequenceToSequence(AuditedModel):
    """An encoder-decoder.

    Attributes:
        call: ``(module, source_BS, source_mask_BS, target_BT, target_mask_BT)`` gives logits (B, T, V).
        source_vocab_size: number of source ids; None for as many as the target has.
        pads_source: on which sides the source may be padded.
        pads_target: the same for the target. On the left the model must heed the target's mask.
        memory: the submodule whose output is what the decoder sees of the source.
        loss_call: ``(module, source_BS, source_mask_BS, ids_BL, scored_BL)`` gives the training loss, as for
            :class:`CausalLanguageModel`; the ids begin with the start token.
    """

    call: Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor]
    source_vocab_size: int | None = None
    pads_source: tuple[Side, ...] = ("right", "left")
    pads_target: tuple[Side, ...] = ("right",)
    memory: Callable[[Any], nn.Module] | None = None
    loss_call: Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor] | None = None

    def logits(self, inputs: Inputs) -> Tensor:
        assert inputs.source_BS is not None
        assert inputs.source_mask_BS is not None
        return self.call(self.module, inputs.source_BS, inputs.source_mask_BS, inputs.target_BT, inputs.target_mask_BT)

    def loss(self, inputs: Inputs, scored_BT: Tensor) -> Tensor | None:
        assert inputs.source_BS is not None
        assert inputs.source_mask_BS is not None
        if self.loss_call is None:
            return None
        return self.loss_call(self.module, inputs.source_BS, inputs.source_mask_BS, inputs.target_BT, scored_BT)

    @property
    def source_size(self) -> int | None:
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    @property
    def source_sides(self) -> tuple[Side, ...]:
        return self.pads_source

    @property
    def target_sides(self) -> tuple[Side, ...]:
        return self.pads_target
