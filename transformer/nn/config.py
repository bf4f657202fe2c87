"""Settings of one stack of layers, shared by encoders and decoders. Imports no torch, so errors come at once."""

from typing import Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config

PositionName = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
NormName = Literal["layer_norm", "rms_norm"]
ActivationName = Literal["relu", "relu_squared", "gelu", "gelu_tanh", "swiglu"]


def checked_head_size(d_model: int, num_heads: int, num_kv_heads: int) -> int:
    """Width of one attention head; refuses head counts that do not divide."""
    if num_heads < 1:
        raise ValueError(f"`num_heads` must be at least 1 and divide `d_model` ({d_model}), but is {num_heads}.")
    if d_model % num_heads != 0:
        raise ValueError(f"`num_heads` must divide `d_model` ({d_model}), but is {num_heads}.")
    if num_heads % num_kv_heads != 0:
        raise ValueError(f"`num_kv_heads` must divide `num_heads` ({num_heads}), but is {num_kv_heads}.")
    return d_model // num_heads


class StackConfig(Config):
    """Everything that the layers of a model share: one width, one maximum length."""

    d_model: int = Field(gt=0, description="width of embeddings, residual stream and attention output")
    num_heads: int = Field(description="attention heads; must divide d_model")
    num_kv_heads: int | None = Field(None, gt=0, description="key/value heads (GQA, MQA); default: num_heads")
    d_ff: int | None = Field(None, gt=0, description="inner width of the feed-forward; default: 4 * d_model")
    max_length: int = Field(gt=0, description="longest sequence, in tokens")
    activation: ActivationName = "relu"
    norm: NormName = "layer_norm"
    norm_position: Literal["pre", "post"] = "pre"
    norm_eps: float = Field(1e-5, gt=0)
    position: PositionName = "sinusoidal"
    rotary_base: float | None = Field(None, gt=0, description="only with position: rotary; default 10000")
    bias: bool = Field(True, description="biases in linear layers and LayerNorm")
    embedding_norm: bool = Field(False, description="normalise the sum of token embedding and position")
    qk_norm: bool = Field(False, description="RMS-normalise queries and keys of each head")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on each sublayer's output")
    embedding_dropout: float | None = Field(None, ge=0, lt=1, description="on embeddings; default: dropout")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on attention weights")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="inside the feed-forward")
    layer_dropout: float = Field(0.0, ge=0, lt=1, description="chance that a training step skips a layer (LayerDrop)")

    @model_validator(mode="after")
    def _check(self) -> Self:
        checked_head_size(self.d_model, self.num_heads, self.kv_heads)
        if self.position == "rotary" and self.head_size % 2 != 0:
            raise ValueError(
                f"`position: rotary` needs an even head size, but `d_model` / `num_heads` is {self.head_size}."
            )
        if self.position != "rotary" and self.rotary_base is not None:
            raise ValueError(f"`rotary_base` has no effect with `position: {self.position}`; leave it out.")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def embedding_dropout_rate(self) -> float:
        """Dropout on embeddings."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    @property
    def ff_width(self) -> int:
        """Inner width of the feed-forward."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff
