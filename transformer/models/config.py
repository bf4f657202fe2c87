"""Settings of whole models. What the tokenizer knows (vocabulary size, special ids) is never in here."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.nn.config import PositionName, StackConfig


class _WholeModelConfig(StackConfig):
    """What both models add to a stack of layers."""

    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(d_model)")
    initialization: Literal["xavier", "normal"] = "xavier"
    zero_outputs: bool = Field(
        False, description="projections into the residual stream, and an output layer that is not tied, start at zero"
    )
    init_std: float | None = Field(None, gt=0, description="only with initialization: normal; default 0.02")

    @model_validator(mode="after")
    def _check_initialization(self) -> Self:
        if self.initialization == "xavier" and self.init_std is not None:
            raise ValueError("`init_std` has no effect with `initialization: xavier`; leave it out.")
        return self


class EncoderDecoderConfig(_WholeModelConfig):
    """An encoder-decoder Transformer for translation and other sequence-to-sequence tasks."""

    name: Literal["encoder_decoder"]
    num_encoder_layers: int = Field(ge=1)
    num_decoder_layers: int = Field(ge=1)
    tie_embeddings: Literal["none", "decoder", "all"] = Field(
        "all", description="decoder: target embedding = output projection; all: source embedding too (joint tokenizer)"
    )


class DecoderOnlyConfig(_WholeModelConfig):
    """A causal language model."""

    name: Literal["decoder_only"]
    num_layers: int = Field(ge=1)
    tie_embeddings: bool = Field(True, description="input embedding = output projection")
    scale_embeddings: bool = Field(False, description="multiply embeddings by sqrt(d_model)")
    position: PositionName = "learned"
    sliding_window: int | None = Field(None, ge=1, description="each token sees itself and the window - 1 before it")
    initialization: Literal["xavier", "normal"] = "normal"


ModelConfig = Annotated[EncoderDecoderConfig | DecoderOnlyConfig, Field(discriminator="name")]
