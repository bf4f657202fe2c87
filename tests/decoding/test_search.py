"""The search that a configuration names, and its settings."""

import pytest
from pydantic import TypeAdapter, ValidationError

from transformer.decoding.beam import beam_search
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules
from transformer.decoding.sampling import sample_search
from transformer.decoding.search import search


@pytest.fixture
def tables(random_table):
    return [random_table(place, 5, 0.4) for place in range(12)]


def test_each_name_runs_its_search(table_model, tables):
    requests = [Request(limit, line=line) for line, limit in enumerate([6, 0, 3] * 4)]
    beam = BeamConfig(name="beam", size=4, normalization="average", length_penalty=0.5)
    sample = SampleConfig(name="sample", temperature=2.0, seed=7)
    greedy = GreedyConfig(name="greedy")
    rules = {config.name: Rules(config, requests, eos_id=0) for config in (greedy, beam, sample)}
    found = {}
    for config in (greedy, beam, sample):
        found[config.name] = search(table_model(tables), config, requests, eos_id=0)
    assert found["greedy"] == [[best] for best in greedy_search(table_model(tables), rules["greedy"])]
    assert found["beam"] == beam_search(table_model(tables), beam, rules["beam"])
    assert found["sample"] == sample_search(table_model(tables), sample, rules["sample"])
    assert found["greedy"] != found["beam"]
    assert found["greedy"] != found["sample"]


def test_greedy_search_gives_one_output(table_model, tables):
    with pytest.raises(ValueError, match="one output, but 2 are asked for"):
        search(table_model(tables), GreedyConfig(name="greedy"), [Request(3)] * 12, eos_id=0, num_best=2)


@pytest.mark.parametrize("name", ["greedy", "beam", "sample"])
def test_limits_are_those_of_each_request(table_model, name):
    goes_on = [lambda text: [0.0, 0.5, 0.5]] * 3
    config = TypeAdapter(DecodingConfig).validate_python({"name": name})
    requests = [Request(limit, line=line) for line, limit in enumerate([2, 4, 9])]
    hypotheses = search(table_model(goes_on), config, requests, eos_id=0)
    assert [len(hypothesis.tokens) for [hypothesis] in hypotheses] == [2, 4, 9]
    hypotheses = search(table_model(goes_on), config, [Request(0)] * 3, eos_id=0)
    assert [tuple(hypothesis) for [hypothesis] in hypotheses] == [([], 0.0, 0.0, False, [])] * 3


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
        ({"name": "sample", "min_p": 0.0}, "min_p"),
        ({"name": "sample", "epsilon": 1.0}, "epsilon"),
        ({"name": "beam", "patience": 0.9}, "patience"),
        ({"name": "beam", "coverage_penalty": -1.0}, "coverage_penalty"),
        ({"name": "beam", "size": 5, "groups": 2, "diversity": 0.5}, r"`groups` must divide `size` \(5\), but is 2"),
        ({"name": "beam", "size": 4, "groups": 2}, "belong together, but they are 2 and 0"),
        ({"name": "beam", "diversity": 0.5}, "belong together, but they are 1 and 0.5"),
        ({"name": "greedy", "no_repeat_ngram": 0}, "no_repeat_ngram"),
        ({"name": "greedy", "repetition_penalty": 0.0}, "repetition_penalty"),
        ({"name": "beam", "min_new_tokens": 3, "max_new_tokens": 2}, r"`max_new_tokens` \(2\), but is 3"),
        ({"name": "beam", "min_length_factor": 2.0, "max_length_factor": 1.5}, r"\(1.5\), but is 2"),
        ({"name": "bean"}, "'greedy', 'beam', 'sample'"),
        ({}, "name"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, where):
    with pytest.raises(ValidationError, match=where):
        TypeAdapter(DecodingConfig).validate_python(settings)
