"""Word alignments from the attention of a model in which it is known."""

import logging
import re

import pytest
import torch

from transformer.bundle import Bundle
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.alignment import align, word_links
from transformer.inference.translator import Translator

DIAGONAL, LAYERS = 2, 3


@pytest.fixture
def diagonal_translator(tiny_bundle):
    """Make a translator whose decoder position t attends to source position t in layer 2, and to all alike in others.

    Everything but the positions is zero, and in layer 2 queries and keys are the positions themselves, enlarged. Its
    characters are tokens, white space included.
    """

    def make(*tags, layers=LAYERS, diagonal=DIAGONAL):
        plain = tiny_bundle("encoder_decoder", num_decoder_layers=layers, num_heads=1)
        tokenizer = Tokenizer.train(CharConfig(byte_fallback=False), ["abcdefghwxyz "], tags=tags)
        model = type(plain.model)(plain.model.config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
        attention = model.decoder_layers[diagonal - 1].cross_attention
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
            width = model.config.d_model
            attention.query.weight.copy_(4 * torch.eye(width))
            attention.key_value.weight[:width] = 4 * torch.eye(width)
        config = plain.config
        if tags:
            data = MixtureConfig(corpora={tag[2:4]: PhrasesConfig(tag=tag) for tag in tags})
            config = config.model_copy(update={"data": data})
        return Translator(Bundle(config, model, tokenizer, tokenizer))

    return make


def _links_of_characters(source, target, weights):
    """For each target word the source word with the greatest sum of weights; the end of the source is left aside."""
    sums = {}
    for row, character in enumerate(target):
        for column, other in enumerate(source):
            if not character.isspace() and not other.isspace():
                pair = len(source[: column + 1].split()) - 1, len(target[: row + 1].split()) - 1
                sums[pair] = sums.get(pair, 0.0) + float(weights[row, column])
    best = [max((pair for pair in sums if pair[1] == word), key=sums.get) for word in {pair[1] for pair in sums}]
    return sorted(best)


def _strongest(alignment):
    return [row.index(max(row)) for row in alignment.weights]


def test_rows_are_of_the_positions_that_predict_the_target_tokens(diagonal_translator):
    """The first target token is predicted from the start token, at position 0: it attends to source token 0."""
    [alignment] = align(diagonal_translator(), ["a bcd ef"], ["xy zab"])
    assert alignment.source_tokens == [*"a bcd ef", "</s>"]
    assert alignment.target_tokens == [*"xy zab"]
    assert (len(alignment.weights), {len(row) for row in alignment.weights}) == (6, {9})
    assert _strongest(alignment) == [0, 1, 2, 3, 4, 5]
    for row in alignment.weights:
        assert sum(row) == pytest.approx(1, abs=1e-5)
    # x y on a and white space, z a b on c, d and white space
    assert alignment.links == [(0, 0), (1, 1)]
    assert alignment.pharaoh == "0-0 1-1"


def test_links_have_the_source_word_first(diagonal_translator):
    translator = diagonal_translator()
    [wide] = align(translator, ["abc def"], ["x y z w"])
    assert wide.pharaoh == "0-0 0-1 1-2 1-3"
    [narrow] = align(translator, ["x y z w"], ["ab cde"])
    assert narrow.pharaoh == "0-0 2-1"


def test_a_tag_moves_the_source_and_is_no_word(diagonal_translator):
    translator = diagonal_translator("<2de>", "<2fr>")
    [alignment] = align(translator, ["a b c"], [" x y z"], tags=["<2fr>"])
    assert alignment.source_tokens == ["<2fr>", *"a b c", "</s>"]
    assert _strongest(alignment) == [0, 1, 2, 3, 4, 5]
    assert alignment.pharaoh == "0-0 1-1 2-2"
    # x y on c and the white space after it; if the tag were forgotten, they would be on white space and d.
    [alignment] = align(translator, ["abc d"], ["   xy"], tags=["<2fr>"])
    assert alignment.pharaoh == "0-0"
    [alignment] = align(translator, ["a b c"], ["x"], tags=["<2de>"])
    assert _strongest(alignment) == [0]  # on the tag, and next on the word after it
    assert alignment.pharaoh == "0-0"
    with pytest.raises(ValueError, match="sources must be tagged as in training"):
        align(translator, ["a"], ["b"])


def test_the_end_token_is_no_word(diagonal_translator):
    [alignment] = align(diagonal_translator(), ["a b"], ["w x z"])
    assert _strongest(alignment)[:4] == [0, 1, 2, 3]
    assert alignment.source_tokens[3] == "</s>"
    assert alignment.pharaoh == "0-0 1-1 1-2"
    [alignment] = align(diagonal_translator(), ["a b"], [" " * 3 + "x"])
    assert _strongest(alignment) == [0, 1, 2, 3]
    assert alignment.pharaoh == "1-0"


def test_the_last_layer_but_one_is_read_unless_another_is_given(diagonal_translator):
    translator = diagonal_translator()
    [default] = align(translator, ["a b c"], ["x y z"])
    assert align(translator, ["a b c"], ["x y z"], layer=2) == [default]
    for layer in (1, 3):
        [other] = align(translator, ["a b c"], ["x y z"], layer=layer)
        for row in other.weights:
            assert row == pytest.approx([1 / 6] * 6, abs=1e-6)
    [only] = align(diagonal_translator(layers=1, diagonal=1), ["a b c"], ["x y z"])
    assert _strongest(only) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("layer", [0, -1, 4])
def test_there_must_be_such_a_layer(diagonal_translator, layer):
    with pytest.raises(ValueError, match=rf"`layer` must be a decoder layer, from 1 to 3, but is {layer}\."):
        align(diagonal_translator(), ["a"], ["b"], layer=layer)


def test_an_ensemble_has_no_alignment(tiny_bundle):
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (1, 2)]
    with pytest.raises(ValueError, match="read off one model, but this is an ensemble of 2"):
        align(Translator(bundles[0], ensemble=bundles[1:]), ["a"], ["b"])


def test_weights_are_the_mean_over_heads_and_do_not_depend_on_the_batch(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder", num_decoder_layers=2))
    translator.model.train()
    sources = ["ab cd", "f", "gh ab cdef ab", "", "aaa"]
    targets = ["b", "abc def gh abc", "", "ab", "d e"]
    together = align(translator, sources, targets)
    tokenizer, model = translator.bundle.source_tokenizer, translator.model.eval()
    for source, target, alignment in zip(sources, targets, together, strict=True):
        with torch.no_grad():
            memory = model.encode(torch.tensor([[*tokenizer.encode(source), 2]])).memory_BSD
            inputs = torch.tensor([[1, *tokenizer.encode(target)]])
            heads = model.decode(inputs, memory, backend="explicit").cross_weights[0][0]
        expected = (heads[0] + heads[1]) / 2
        assert len(alignment.weights) == len(target)
        for row, expected_row in zip(alignment.weights, expected[:-1].tolist(), strict=True):
            assert row == pytest.approx(expected_row, abs=1e-5)
        assert alignment.links == _links_of_characters(source, target, expected)
    for budget in (1, 20):
        for one, other in zip(together, align(translator, sources, targets, max_tokens_per_batch=budget), strict=True):
            assert one.links == other.links
            for row, other_row in zip(one.weights, other.weights, strict=True):
                assert row == pytest.approx(other_row, abs=1e-5)


def test_blank_texts_have_no_links(diagonal_translator):
    alignments = align(diagonal_translator(), ["", "a", " ", "a b"], ["x", "", "x y", " "])
    assert [alignment.pharaoh for alignment in alignments] == [""] * 4
    assert alignments[1].weights == []
    assert align(diagonal_translator(), [], []) == []


def test_targets_may_be_token_ids(diagonal_translator):
    translator = diagonal_translator()
    ids = translator.bundle.target_tokenizer.encode("x y")
    assert align(translator, ["a b"] * 2, [ids, "x y"]) == align(translator, ["a b"] * 2, ["x y", ids])


def test_an_over_long_source_is_cut_and_said_so(diagonal_translator, caplog):
    source = "ab " * 8
    with caplog.at_level(logging.WARNING):
        [alignment] = align(diagonal_translator(), [source], ["x" * 24], lines=[5])  # 24: as long as the model
    assert caplog.messages == ["line 5 has 24 source tokens, of which the first 23 are aligned."]
    assert alignment.source_tokens == [*source[:23], "</s>"]
    assert len(alignment.weights) == 24
    with pytest.raises(ValueError, match=r"^line 8: the target must have at most the model's 24 tokens, but has 25\.$"):
        align(diagonal_translator(), ["a", "a"], ["b", "x" * 25], lines=[3, 8])
    with pytest.raises(ValueError, match="as many targets as sources"):
        align(diagonal_translator(), ["a"], [])


def test_words_that_the_model_cannot_see_are_told(diagonal_translator, caplog):
    with caplog.at_level(logging.WARNING):
        [alignment] = align(diagonal_translator(), ["a\tb c"], ["x y z"], lines=[3])
    assert caplog.messages == ["line 3 reads 'a<unk>b c' to the model; words are numbered as there."]
    assert alignment.pharaoh == "0-0 0-1 1-2"


def test_several_targets_of_a_line_are_warned_about_once(diagonal_translator, caplog):
    long, tab = "ab " * 8, "a\tb"
    sources, lines = [long, long, tab, tab, long], [4, 4, 5, 5, 7]
    with caplog.at_level(logging.WARNING):
        align(diagonal_translator(), sources, ["x", "y", "x y", "y", "z"], lines=lines)
    assert caplog.messages == [
        "line 4 has 24 source tokens, of which the first 23 are aligned.",
        "line 7 has 24 source tokens, of which the first 23 are aligned.",
        "line 5 reads 'a<unk>b' to the model; words are numbered as there.",
    ]


@pytest.mark.parametrize("what", ["lines", "tags"])
def test_lines_and_tags_are_of_each_pair(diagonal_translator, what):
    with pytest.raises(ValueError, match=rf"^`{what}` must be given for each of 2 texts, but are for 1\.$"):
        align(diagonal_translator(), ["a", "b"], ["x", "y"], **{what: [None]})


@pytest.mark.parametrize(
    ("source_words", "target_words", "expected"),
    [
        ([[0], [1], []], [[0], [1]], [(0, 0), (1, 1)]),
        ([[0], [0], []], [[0], [1]], [(0, 0), (0, 1)]),
        ([[], [0], [1]], [[0], [1]], [(0, 1), (1, 0)]),  # the first column has most, but is of no word
        ([[1], [0], []], [[0], [0]], [(1, 0)]),  # 0.55 + 0.3 against 0.2 + 0.6
        ([[0, 1], [1], []], [[0], []], [(1, 0)]),  # 0.55 against 0.55 + 0.2
        ([[0], [2], []], [[0], [2]], [(0, 0), (2, 2)]),  # no token spells word 1 of either side
        ([[], [], []], [[0], [1]], []),
        ([[0], [1], []], [[], []], []),
    ],
)
def test_words_are_linked_by_the_sum_over_their_tokens(source_words, target_words, expected):
    weights = torch.tensor([[0.55, 0.2, 0.25], [0.3, 0.6, 0.1]])
    assert word_links(weights, source_words, target_words) == expected


def test_pharaoh_is_sorted_by_numbers(diagonal_translator):
    letters = " ".join("abcdefghabc")
    [alignment] = align(diagonal_translator(), [letters], [letters])
    assert re.fullmatch(r"(\d+)-\1( (\d+)-\3){10}", alignment.pharaoh)
    assert alignment.pharaoh.endswith(" 9-9 10-10")
