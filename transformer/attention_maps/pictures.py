"""The pictures of one kind of attention: an overview of its heads, and a page for each layer."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from matplotlib.figure import Figure

from transformer.attention_maps.drawing import Page, Panel, Side, draw_overview, draw_page
from transformer.attention_maps.fonts import Fonts
from transformer.attention_maps.labels import ELLIPSIS, label_texts
from transformer.attention_maps.maps import AttentionMap, Kind
from transformer.attention_maps.summary import HeadWeights, entropy

ENTROPY_NOTE = "Entropy is 0 if every row is on a single token; at 100% it is on all alike."
SHARE_NOTE = "Percentages are the entropy: at 0% every row is on a single token, at 100% on all alike."
MISSING_NOTE = "No font has all characters of the tokens labelled by their place and code points (U+…)."
SHOWN_MISSING = 5


class Words(NamedTuple):
    """What a kind of attention is called and means."""

    title: str
    note: str
    queries: str
    keys: str


WORDS: dict[Kind, Words] = {
    "encoder": Words(
        "Encoder self-attention",
        "Each row shows how much the encoder, at that source token, attends to every source token.",
        "source token",
        "attended source token",
    ),
    "decoder": Words(
        "Decoder self-attention",
        "Each row shows how much the decoder, at that token, attends to it and to those before it; it sees no others.",
        "token",
        "attended token",
    ),
    "cross": Words(
        "Cross-attention",
        "Each row shows how much the decoder attends to every source token while it predicts that row's token.",
        "predicted token",
        "source token",
    ),
}


def characters_of(attention: AttentionMap) -> frozenset[str]:
    """Everything that pictures of it have to write."""
    tokens = attention.query_tokens + attention.key_tokens
    return frozenset(ELLIPSIS).union(*(token.text for token in tokens))


def missing_glyphs(fonts: Fonts) -> str | None:
    """What there is to be said about characters without a glyph; None if there are none."""
    if not fonts.missing:
        return None
    shown = " ".join(sorted(fonts.missing)[:SHOWN_MISSING]) + (" …" if len(fonts.missing) > SHOWN_MISSING else "")
    return (
        f"no installed font has {shown}; tokens with them are labelled by their places and code points. Install a font "
        "that has them, such as Noto Sans CJK (on Debian and Ubuntu: apt install fonts-noto-cjk)"
    )


def overview(attention: AttentionMap, heads: Sequence[HeadWeights], fonts: Fonts) -> Figure:
    """All heads small, a layer in each row.

    Args:
        attention: what they are of.
        heads: to be shown, layer by layer, as many of each.
        fonts: for :func:`characters_of` it.
    """
    panels = []
    for head in heads:
        share = entropy(head.weights_QK, attention.visible_QK).share
        panels.append(Panel(head.name if math.isnan(share) else f"{head.name}: {share:.0%}", head.weights_QK))
    words = WORDS[attention.kind]
    page = _page(attention, panels, fonts, f"{words.title}: overview", f"{words.note} {SHARE_NOTE}")
    return draw_overview(page, sum(head.layer == heads[0].layer for head in heads))


def readable_page(attention: AttentionMap, heads: Sequence[HeadWeights], fonts: Fonts) -> Figure:
    """Heads of one layer or of several, every token legible. Arguments as for :func:`overview`."""
    panels = []
    for head in heads:
        nats, share = entropy(head.weights_QK, attention.visible_QK)
        measure = "one token has no choice" if math.isnan(share) else f"entropy {nats:.2f} nats, {share:.0%}"
        panels.append(Panel(f"{head.name}: {measure}", head.weights_QK))
    words = WORDS[attention.kind]
    layers = {head.layer for head in heads}
    title = words.title if len(layers) > 1 else f"{words.title}, layer {heads[0].layer} of {attention.num_layers}"
    return draw_page(_page(attention, panels, fonts, title, f"{words.note} {ENTROPY_NOTE}"))


def pictures(attention: AttentionMap, heads: Sequence[HeadWeights], fonts: Fonts) -> Iterator[tuple[str, Figure]]:
    """Names and pictures, made one after the other: an overview if there are several layers, and each layer's page."""
    layers = [(layer, list(group)) for layer, group in groupby(heads, key=lambda head: head.layer)]
    if len(layers) > 1:
        yield attention.kind, overview(attention, heads, fonts)
    for layer, group in layers:
        yield f"{attention.kind}-layer{layer}", readable_page(attention, group, fonts)


def _page(attention: AttentionMap, panels: Sequence[Panel], fonts: Fonts, title: str, note: str) -> Page:
    words = WORDS[attention.kind]
    if fonts.missing:
        note += f" {MISSING_NOTE}"
    queries = Side(words.queries, label_texts(attention.query_tokens, fonts.missing))
    keys = Side(words.keys, label_texts(attention.key_tokens, fonts.missing))
    return Page(title, note, queries, keys, attention.visible_QK, panels, fonts)
