"""The models that `scripts/benchmark.py decode` gives to its peers are ours: same logits, same outputs."""

import random
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly

pytest.importorskip("transformers")

SCRIPTS = Path(__file__).parents[2] / "scripts"
LENGTH = 24  # the model's maximum
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"position": "learned", "activation": "gelu", "norm_eps": 1e-2},
        {"activation": "gelu_tanh", "scale_embeddings": False, "num_encoder_layers": 3},
    ],
    ids=["relu", "learned", "unscaled"],
)


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])


@pytest.fixture
def peers():
    """Import a module of scripts/peers."""
    return lambda name: import_module(f"peers.{name}")


@pytest.fixture
def bundle(tiny_bundle):
    """A bundle whose outputs end at various lengths and contain no padding or start tokens."""

    def make(**settings):
        made = tiny_bundle("encoder_decoder", tie_embeddings="all", num_decoder_layers=2, seed=3, **settings)
        with torch.no_grad():  # towards where the final norm points on average, or away from it
            towards = made.model.decoder_norm.bias
            towards.copy_(torch.randn(towards.shape, generator=torch.Generator().manual_seed(1)))
            made.model.output.weight[:2] = -towards
            made.model.output.weight[2] = 0.34 * towards
        return made

    return make


def _rows(count, shortest, seed=0):
    """Ids of ordinary tokens, shortest first; the last has the length of the model."""
    generator = random.Random(seed)
    lengths = sorted([LENGTH, *(generator.randint(shortest, LENGTH) for _ in range(count - 1))])
    return [[generator.randint(4, 40) for _ in range(length)] for length in lengths]


def _sources(count):
    return [[*row[:-1], 2] for row in _rows(count, 2)]


def _forced(peers, model, count=6):
    targets = [row[:-1] for row in _rows(count, 1, seed=1)[::-1]]
    return peers("settings").forced(model, _sources(count), targets, pad_id=0, bos_id=1)


def _ours(peers, bundle, folder):
    save_bundle(folder / "bundle", bundle, "card")
    return peers("ours").load_translating(folder / "bundle")


@SETTINGS
def test_m2m100_has_our_logits(bundle, peers, settings):
    model = bundle(**settings).model
    forced = _forced(peers, model)
    theirs = peers("hugging_face").to_m2m100(model, pad_id=0, bos_id=1, eos_id=2)
    assert forced.target_mask_BT.sum(1).max() == LENGTH
    assert forced.logits_BTV.std() > 0.1
    assert peers("hugging_face").deviation(theirs, forced) < 1e-5


@SETTINGS
def test_m2m100_gives_our_greedy_outputs(bundle, peers, settings, tmp_path):
    made = bundle(**settings)
    theirs = peers("hugging_face").to_m2m100(made.model, pad_id=0, bos_id=1, eos_id=2)
    task = peers("settings").Task(beam=1, batch=5, max_tokens=LENGTH)
    outputs = _ours(peers, made, tmp_path)(_sources(30), task)
    assert len(set(map(len, outputs))) > 1
    assert len(set(map(tuple, outputs))) > 5
    assert peers("hugging_face").translating(theirs)(_sources(30), task) == outputs


@SETTINGS
def test_ctranslate2_has_our_probabilities_and_greedy_outputs(bundle, peers, settings, tmp_path):
    pytest.importorskip("ctranslate2")
    made = bundle(**settings)
    ctranslate = peers("ctranslate")
    ctranslate.save_for_ctranslate(tmp_path, made.model, bos_id=1, eos_id=2, unk_id=3)
    assert ctranslate.deviation(tmp_path, _forced(peers, made.model), eos_id=2) < 1e-4
    task = peers("settings").Task(beam=1, batch=5, max_tokens=LENGTH)
    outputs = _ours(peers, made, tmp_path)(_sources(30), task)
    assert ctranslate.load_translating(tmp_path, "float32", 1)(_sources(30), task) == outputs


@pytest.mark.parametrize("beam", [1, 3])
def test_everybody_gives_as_many_tokens_as_asked_for(bundle, peers, beam, tmp_path):
    made = bundle()
    task = peers("settings").Task(beam=beam, batch=4, max_tokens=7, min_tokens=7)
    hugging_face = peers("hugging_face")
    everybody = [
        _ours(peers, made, tmp_path),
        hugging_face.translating(hugging_face.to_m2m100(made.model, pad_id=0, bos_id=1, eos_id=2)),
    ]
    pytest.importorskip("ctranslate2")
    peers("ctranslate").save_for_ctranslate(tmp_path, made.model, bos_id=1, eos_id=2, unk_id=3)
    everybody.append(peers("ctranslate").load_translating(tmp_path, "float32", 1))
    for translate in everybody:
        assert [len(output) for output in translate(_sources(6), task)] == [7] * 6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"position": "rotary"}, "`position` must be sinusoidal or learned for .*M2M100, but is rotary."),
        ({"norm": "rms_norm"}, "`norm` must be layer_norm for .*, but is rms_norm."),
        ({"norm_position": "post"}, "`norm_position` must be pre for .*, but is post."),
        ({"activation": "swiglu"}, "`activation` must be relu or gelu or gelu_tanh for .*, but is swiglu."),
        ({"num_kv_heads": 1}, r"`num_kv_heads` must be `num_heads` \(2\) for .*, but is 1."),
        ({"tie_embeddings": "none"}, "`tie_embeddings` must be all for .*, but is none."),
    ],
)
def test_other_models_are_refused(tiny_bundle, peers, settings, words):
    model = tiny_bundle("encoder_decoder", **{"tie_embeddings": "all", **settings}).model
    with pytest.raises(ValueError, match=words):
        peers("hugging_face").to_m2m100(model, pad_id=0, bos_id=1, eos_id=2)


@pytest.fixture
def language_model():
    torch.manual_seed(0)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=2, d_model=16, num_heads=2, max_length=LENGTH, activation="gelu_tanh"
    )
    model = DecoderOnly(config, 40).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def test_gpt2_has_our_logits(language_model, peers):
    tokens = torch.randint(40, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    theirs = peers("hugging_face").to_gpt2(language_model)
    with torch.no_grad():
        expected, actual = language_model(tokens), theirs(tokens).logits
    assert expected.std() > 0.1
    assert (actual - expected).abs().max() < 1e-5


def test_gpt2_continues_as_ours_for_as_long(language_model, peers):
    prompts = torch.randint(40, (4, 5), generator=torch.Generator().manual_seed(1)).tolist()
    probable = language_model(torch.tensor(prompts))[0, -1].argmax()  # would end at once
    outputs = peers("ours").continuing(language_model, eos_id=int(probable))(prompts, 15)
    assert [len(output) for output in outputs] == [15] * 4
    theirs = peers("hugging_face").to_gpt2(language_model)
    assert peers("hugging_face").continuing(theirs, eos_id=int(probable))(prompts, 15) == outputs
