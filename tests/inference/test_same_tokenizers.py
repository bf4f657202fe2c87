"""Models that work together."""

import pytest

from transformer.inference.same_tokenizers import check_same_tokenizers


def test_models_with_other_vocabularies_are_refused(tiny_bundle):
    bundle = tiny_bundle("decoder_only")
    check_same_tokenizers(bundle, tiny_bundle("decoder_only", seed=1), "the draft")
    with pytest.raises(ValueError, match="the source tokenizers of the first and of the draft differ"):
        check_same_tokenizers(bundle, tiny_bundle("decoder_only", characters="xyz"), "the draft")
