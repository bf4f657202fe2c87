"""All faults, and for each the checks that must fail: these, and no others."""

from collections.abc import Callable
from dataclasses import dataclass

from transformer.audit.model import AuditedModel
from zoo import batch_faults as batch
from zoo import cache_faults as cache
from zoo import decoder_faults as decoder
from zoo import encoder_faults as encoder
from zoo import weight_faults as weights
from zoo.decoder import Decoder, language_model
from zoo.translator import Translator, translation_model

CAUSALITY = ("future changed", "future gradient")
BATCH = ("alone in a batch", "neighbours")
FINITE = ("finite in float32", "finite in bfloat16", "finite in float16")
SOURCE_PADDING = ("source padded right", "source padded left")


@dataclass(frozen=True)
class Fault:
    """One faulty model.

    Attributes:
        text: for the matrix.
        make: the model as the audit is given it.
        fails: the names of all checks that must fail.
    """

    text: str
    make: Callable[[], AuditedModel]
    fails: frozenset[str]


def _decoder(text: str, kind: type[Decoder], *fails: str, **changes: object) -> Fault:
    return Fault(text, lambda: language_model(kind, **changes), frozenset(fails))


def _translator(text: str, kind: type[Translator], *fails: str) -> Fault:
    return Fault(text, lambda: translation_model(kind), frozenset(fails))


FAULTS = (
    _decoder("dropout stays on", batch.DropoutStaysOn, "dropout off"),
    _decoder("dropout never on", batch.DropoutNeverOn, "dropout on"),
    _decoder("different in each call", batch.DifferentEachTime, "deterministic"),
    _decoder("gradient cut off", weights.GradientCutOff, "gradients flow"),
    _decoder("no causal mask", decoder.Bidirectional, *CAUSALITY),
    _decoder("softmax over the queries", decoder.SoftmaxOverQueries, *CAUSALITY),
    _decoder("mask after the softmax", decoder.MaskAfterSoftmax, *CAUSALITY),
    _decoder("heads mixed with time", decoder.HeadsMixedWithTime, *CAUSALITY),
    _decoder("norm over the sequence", decoder.NormOverSequence, *CAUSALITY),
    # Queries and keys have nothing to choose from then, so no gradient reaches them.
    _decoder("each token sees itself alone", decoder.SeesItself, "past seen", "parameters used"),
    _decoder("input shifted twice", decoder.ShiftedTwice, "past seen", cache=None, masked_call=None),
    _decoder("positions count left padding", decoder.PositionsOfPadding, "target padded left"),
    _decoder("positions from the end", decoder.PositionsFromEnd, "target padded right"),
    _decoder("left padding seen", decoder.PaddingSeen, "target padded left"),
    _decoder("softmax without the maximum", decoder.SoftmaxOverflows, *FINITE),
    _decoder("mask value beyond float16", decoder.MaskValueTooLarge, "finite in float16"),
    _decoder("one token taken for a step", decoder.OneTokenTakenForStep, "stepwise"),
    _decoder("top-left mask with a cache", cache.TopLeftMask, "cached"),
    _decoder("cached position off by one", cache.PositionOffByOne, "cached"),
    _decoder("one cache for all sessions", cache.OneSessionOnly, "cached, two sessions"),
    _decoder("cache rows overwritten", cache.AliasedRows, "cached, rows chosen"),
    _decoder("cache forgets padding", cache.PaddingForgotten, "cached, padded"),
    _translator("source ignored", encoder.SourceIgnored, "source seen"),
    _translator("encoder reads the target", encoder.LeakingEncoder, "encoder leak", *CAUSALITY),
    _translator("encoder sees padding", encoder.EncoderSeesPadding, *SOURCE_PADDING),
    _translator("decoder sees source padding", encoder.DecoderSeesPadding, *SOURCE_PADDING),
    _translator("source positions count padding", encoder.SourcePositionsOfPadding, "source padded left"),
    _translator("encoder heads mixed with time", encoder.EncoderHeadsMixedWithTime, *SOURCE_PADDING),
    _translator("keys given the queries' length", encoder.KeysOfQueryLength, "runs"),
    _translator("NaN of a masked row", encoder.NanOfMaskedRows, "fully masked rows"),
    _translator("residual after the norm", encoder.ResidualAfterNorm, "residual kept"),
    _translator("encoder without gradients", encoder.EncoderDetached, "parameters used"),
    _decoder("norm over the batch", batch.NormOverBatch, *BATCH),
    _decoder("neighbour leaks", batch.NeighboursLeak, *BATCH, "order of a batch"),
    _decoder("position of the row", batch.PositionOfRow, "alone in a batch", "order of a batch"),
    _decoder("batch taken for time", batch.TimeFirst, *BATCH, "past seen", cache=None),
    _decoder("unused parameter", weights.UnusedParameter, "parameters used"),
    _decoder("untied copy", weights.UntiedCopy, "weights tied"),
    _decoder("buffer not saved", weights.BufferUnsaved, "saved and loaded"),
    _decoder("embeddings too large", weights.EmbeddingsTooLarge, "initial loss"),
    _decoder("layers too large", weights.LayersTooLarge, "initial scale"),
    _decoder("loss not shifted", weights.LossUnshifted, "label shift"),
    _decoder("loss shifted twice", weights.LossShiftedTwice, "label shift"),
    _decoder("padding scored", weights.LossOfPadding, "padding unscored"),
    _decoder("loss over all places", weights.LossOverAllPlaces, "padding unscored"),
    _decoder("loss of row means", weights.LossOfRowMeans, "padding unscored"),
    _decoder("loss ignores an id", weights.LossIgnoresAnId, "padding unscored"),
)
