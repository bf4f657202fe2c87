"""Settings of whole models: what is read, what is refused and in which words."""

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig, ModelConfig

TRANSLATION = {
    "name": "encoder_decoder",
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "d_model": 12,
    "num_heads": 3,
    "max_length": 16,
}
LANGUAGE = {"name": "decoder_only", "num_layers": 2, "d_model": 12, "num_heads": 3, "max_length": 16}


def test_the_name_decides_which_model_it_is():
    adapter = TypeAdapter(ModelConfig)
    assert isinstance(adapter.validate_python(TRANSLATION), EncoderDecoderConfig)
    assert isinstance(adapter.validate_python(LANGUAGE), DecoderOnlyConfig)
    with pytest.raises(ValidationError, match="'encoder_decoder', 'decoder_only'"):
        adapter.validate_python(LANGUAGE | {"name": "decoder"})


def test_defaults_are_the_usual_ones_of_each_kind():
    translation, language = EncoderDecoderConfig(**TRANSLATION), DecoderOnlyConfig(**LANGUAGE)
    assert (translation.scale_embeddings, translation.initialization, translation.tie_embeddings) == (
        True,
        "xavier",
        "all",
    )
    assert (language.scale_embeddings, language.initialization, language.tie_embeddings) == (False, "normal", True)
    # Sinusoids of size 1 would drown unscaled embeddings of size 0.02.
    assert (translation.position, language.position) == ("sinusoidal", "learned")
    for config in (translation, language):
        assert (config.head_size, config.kv_heads, config.ff_width) == (4, 3, 48)
        assert (config.norm, config.norm_position, config.activation) == ("layer_norm", "pre", "relu")
        assert (config.bias, config.qk_norm, config.norm_eps) == (True, False, 1e-5)
        assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.1, 0.0, 0.0)


def test_plain_data_comes_back_as_it_went():
    config = DecoderOnlyConfig.from_plain(LANGUAGE | {"num_kv_heads": 1, "dropout": 0, "position": "rotary"})
    assert config.dropout == 0.0
    assert DecoderOnlyConfig.from_plain(config.to_plain()) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.d_model = 24


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, r"`num_heads` must divide `d_model` \(12\), but is 5\."),
        ({"num_heads": 6, "num_kv_heads": 4}, r"`num_kv_heads` must divide `num_heads` \(6\), but is 4\."),
        ({"position": "rotary", "num_heads": 4}, r"even head size, but `d_model` / `num_heads` is 3\."),
        ({"rotary_base": 500.0}, r"`rotary_base` has no effect with `position: learned`"),
        ({"initialization": "xavier", "init_std": 0.1}, "`init_std` has no effect with `initialization: xavier`"),
        ({"num_heads": 0}, r"`num_heads` must be at least 1 and divide `d_model` \(12\), but is 0\."),
        ({"num_layers": 0}, "num_layers\n.*greater than or equal to 1"),
        ({"max_length": 0}, "max_length\n.*greater than 0"),
        ({"dropout": 1.0}, "dropout\n.*less than 1"),
        ({"attention_dropout": -0.1}, "attention_dropout\n.*greater than or equal to 0"),
        ({"sliding_window": 0}, "sliding_window\n.*greater than or equal to 1"),
        ({"d_model": "12"}, "d_model\n.*valid integer"),
        ({"bias": 1}, "bias\n.*valid boolean"),
        ({"activation": "silu"}, "activation\n.*'relu', 'relu_squared', 'gelu', 'gelu_tanh' or 'swiglu'"),
        ({"n_layer": 2}, "n_layer\n.*not permitted"),
        ({"vocab_size": 100}, "vocab_size\n.*not permitted"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ValidationError, match=message):
        DecoderOnlyConfig.from_plain(LANGUAGE | changes)


@pytest.mark.parametrize("key", ["d_model", "num_heads", "max_length", "num_layers"])
def test_sizes_have_no_default(key):
    with pytest.raises(ValidationError, match=f"{key}\n.*required"):
        DecoderOnlyConfig.from_plain({name: value for name, value in LANGUAGE.items() if name != key})


def test_reading_settings_does_not_load_torch():
    code = "import sys, transformer.models.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
