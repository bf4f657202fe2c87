"""The search that a configuration names, and its settings."""

import pytest
from pydantic import TypeAdapter, ValidationError

from transformer.decoding.beam import beam_search
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.sampling import sample_search
from transformer.decoding.search import search


@pytest.fixture
def tables(random_table):
    return [random_table(place, 5, 0.4) for place in range(12)]


def test_each_name_runs_its_search(table_model, tables):
    limits, lines = [6, 0, 3] * 4, list(range(12))
    beam = BeamConfig(name="beam", size=4, normalization="average", length_penalty=0.5)
    sample = SampleConfig(name="sample", temperature=2.0, seed=7)
    found = {}
    for config in (GreedyConfig(name="greedy"), beam, sample):
        found[config.name] = search(table_model(tables), config, eos_id=0, limits=limits, lines=lines)
    assert found["greedy"] == greedy_search(table_model(tables), eos_id=0, limits=limits)
    assert found["beam"] == [best for [best] in beam_search(table_model(tables), beam, eos_id=0, limits=limits)]
    assert found["sample"] == sample_search(table_model(tables), sample, eos_id=0, limits=limits, lines=lines)
    assert found["greedy"] != found["beam"]
    assert found["greedy"] != found["sample"]


@pytest.mark.parametrize("name", ["greedy", "beam", "sample"])
def test_the_smaller_of_both_limits_counts(table_model, name):
    goes_on = [lambda text: [0.0, 0.5, 0.5]] * 3
    config = TypeAdapter(DecodingConfig).validate_python({"name": name, "max_new_tokens": 4})
    hypotheses = search(table_model(goes_on), config, eos_id=0, limits=[2, 4, 9], lines=[1, 2, 3])
    assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [2, 4, 4]
    config = TypeAdapter(DecodingConfig).validate_python({"name": name, "max_new_tokens": 0})
    hypotheses = search(table_model(goes_on), config, eos_id=0, limits=[2, 4, 9], lines=[1, 2, 3])
    assert [tuple(hypothesis) for hypothesis in hypotheses] == [([], 0.0, 0.0, False)] * 3


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"name": "greedy", "max_new_tokens": -1}, "max_new_tokens"),
        ({"name": "greedy", "size": 5}, "size"),
        ({"name": "beam", "size": 0}, "size"),
        ({"name": "beam", "length_penalty": -0.1}, "length_penalty"),
        ({"name": "beam", "normalization": "sum"}, "normalization"),
        ({"name": "sample", "temperature": -1.0}, "temperature"),
        ({"name": "sample", "top_k": 0}, "top_k"),
        ({"name": "sample", "top_p": 0.0}, "top_p"),
        ({"name": "sample", "top_p": 1.1}, "top_p"),
        ({"name": "sample", "seed": -1}, "seed"),
        ({"name": "bean"}, "'greedy', 'beam', 'sample'"),
        ({}, "name"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, where):
    with pytest.raises(ValidationError, match=where):
        TypeAdapter(DecodingConfig).validate_python(settings)
