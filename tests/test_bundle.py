"""A trained model as one folder."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.data.subwords.config import BpeConfig, CharConfig
from transformer.data.subwords.tokenizer import Tokenizer

KINDS = pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("encoder_decoder", {}),
        ("encoder_decoder", {"tie_embeddings": "all", "position": "learned", "activation": "swiglu", "bias": False}),
        ("encoder_decoder", {"tie_embeddings": "decoder", "norm": "rms_norm", "norm_position": "post"}),
        ("decoder_only", {"num_kv_heads": 1, "qk_norm": True, "position": "rotary", "sliding_window": 5}),
        ("decoder_only", {"tie_embeddings": True, "position": "alibi", "num_layers": 2}),
    ],
)


def _logits(model, config):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [11, 4, 3, 2, 1, 0]])
    with torch.no_grad():
        return model(ids, ids) if config.model.name == "encoder_decoder" else model(ids)


@KINDS
def test_a_loaded_bundle_is_the_saved_one(tiny_bundle, tmp_path, name, settings):
    bundle = tiny_bundle(name, mark_documents=name == "decoder_only", **settings)
    bundle.model.train()
    save_bundle(tmp_path / "new" / "folder", bundle, "# Card of müsli\n")
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "new" / "folder" / "README.md").read_text(encoding="utf-8") == "# Card of müsli\n"
    loaded = load_bundle(str(tmp_path / "new" / "folder"))
    assert loaded.config == bundle.config
    assert not loaded.model.training
    assert loaded.source_tokenizer is loaded.target_tokenizer
    assert loaded.source_tokenizer.encode("abc ä") == bundle.source_tokenizer.encode("abc ä")
    assert torch.equal(_logits(loaded.model, loaded.config), _logits(bundle.model.eval(), bundle.config))


def test_two_tokenizers(tiny_bundle, tmp_path):
    joint = tiny_bundle("encoder_decoder")
    target = Tokenizer.train(CharConfig(), ["uvwxyz"])
    model = type(joint.model)(joint.model.config, joint.source_tokenizer.vocab_size, target.vocab_size).eval()
    save_bundle(tmp_path, Bundle(joint.config, model, joint.source_tokenizer, target), "card")
    loaded = load_bundle(tmp_path)
    assert loaded.source_tokenizer.vocab_size == joint.source_tokenizer.vocab_size != 10
    assert loaded.target_tokenizer.vocab_size == 10
    assert loaded.model.target_embedding.weight.shape == (10, 16)
    # A joint vocabulary saved to the same folder leaves nothing of the separate one.
    save_bundle(tmp_path, joint, "card")
    again = load_bundle(tmp_path)
    assert again.source_tokenizer is again.target_tokenizer
    assert torch.equal(_logits(again.model, again.config), _logits(joint.model, joint.config))


def test_a_bundle_with_a_subword_tokenizer(tiny_bundle, tmp_path):
    """Trained on a few lines, as a run would."""
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=270), ["hello world", "hello there", "world wide"] * 5)
    plain = tiny_bundle("decoder_only")
    model = type(plain.model)(plain.model.config, tokenizer.vocab_size).eval()
    save_bundle(tmp_path, Bundle(plain.config, model, tokenizer, tokenizer), "card")
    loaded = load_bundle(tmp_path)
    assert loaded.model.vocab_size == tokenizer.vocab_size == 270
    assert loaded.target_tokenizer.encode("hello world wide") == tokenizer.encode("hello world wide")


@pytest.fixture
def folder(tiny_bundle, tmp_path):
    save_bundle(tmp_path, tiny_bundle("decoder_only"), "card")
    return tmp_path


def _change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_the_file_holds_every_parameter_once_in_float32(folder, tiny_bundle):
    tensors = load_file(folder / "model.safetensors")
    assert tensors.keys() == dict(tiny_bundle("decoder_only").model.named_parameters()).keys()
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=missing):
        load_bundle(folder)


@pytest.mark.parametrize("path", ["nowhere", "tokenizer.json"])
def test_what_is_no_folder_is_no_bundle(folder, path):
    with pytest.raises(ValueError, match=rf"{path} is not a bundle: it has no config.json"):
        load_bundle(folder / path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config["model"].update(num_layrs=3), "num_layrs"),
        (lambda config: config["model"].update(num_heads=3), r"`num_heads` must divide `d_model` \(16\), but is 3"),
        (lambda config: config["model"].update(name="rnn"), "'encoder_decoder', 'decoder_only'"),
        (lambda config: config.update(format_version=2), "format_version"),
        (lambda config: config.pop("data"), "data"),
    ],
)
def test_a_wrong_configuration_is_refused(folder, change, message):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=rf"(?s)config\.json is not a bundle's configuration: .*{message}"):
        load_bundle(folder)


@pytest.mark.parametrize("content", [b"", b"no json", b"[1, 2]", b"\xff\xfe"])
def test_a_configuration_that_is_none_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is not a bundle's configuration"):
        load_bundle(folder)


def test_an_unknown_tensor_is_refused(folder):
    _change_tensors(folder, lambda tensors: tensors.update(extra=torch.zeros(2)))
    with pytest.raises(ValueError, match=r"model\.safetensors holds `extra`, which the model does not have"):
        load_bundle(folder)


def test_a_missing_tensor_is_refused(folder):
    _change_tensors(folder, lambda tensors: tensors.pop("norm.weight"))
    with pytest.raises(ValueError, match=r"model\.safetensors lacks `norm.weight`, which the model needs"):
        load_bundle(folder)


def test_a_tensor_of_another_shape_is_refused(folder):
    _change_tensors(folder, lambda tensors: tensors.update({"norm.weight": torch.ones(1)}))  # would broadcast
    with pytest.raises(ValueError, match=r"`norm.weight` must have shape \(16,\), but has \(1,\) in .*model\."):
        load_bundle(folder)
