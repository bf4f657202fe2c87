"""What attention comes to in numbers, as tables for people and as JSON for machines."""

import json
import math
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from transformer.attention_maps.maps import AttentionMap
from transformer.attention_maps.pictures import WORDS
from transformer.attention_maps.summary import HeadWeights, Link, choose_heads, entropy, strongest_links
from transformer.attention_maps.token_texts import Token
from transformer.cli.line_answers import json_number
from transformer.cli.lines import json_on_one_line
from transformer.inference.attention_maps import Attention
from transformer.training.callbacks import visible

NUM_STRONGEST = 2  # links of each head in the table
ChosenHeads = Sequence[tuple[AttentionMap, Sequence[HeadWeights]]]  # of each kind


def report(example: Attention, chosen: ChosenHeads) -> Iterator[Table | Text]:
    """The texts and the tables."""
    for name, text in (
        ("source" if example.target is not None else "prompt", example.source),
        ("target", example.target),
    ):
        if text is not None:
            yield Text(f"{name}: ").append(visible(text))
    for attention, heads in chosen:
        yield Text()
        yield heads_table(attention, heads)
    for attention, heads in chosen:
        if attention.kind == "cross":
            yield Text()
            yield links_table(attention, mean_for_links(attention, heads))


def mean_for_links(attention: AttentionMap, heads: Sequence[HeadWeights]) -> HeadWeights:
    """The mean over the heads of the last layer but one, as word alignments have it, or of the last one looked at."""
    layers = {head.layer for head in heads}
    usual = max(attention.num_layers - 1, 1)
    [mean] = choose_heads(attention, [usual if usual in layers else max(layers)], [None])
    return mean


def heads_table(attention: AttentionMap, heads: Sequence[HeadWeights]) -> Table:
    """One line for each head: how spread it is, and its strongest links."""
    num_queries, num_keys = attention.visible_QK.shape
    table = Table(
        title=f"{WORDS[attention.kind].title}, {num_queries} × {num_keys} tokens",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for heading in ("layer", "head", "entropy", "of max."):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("strongest", overflow="fold", ratio=1)
    for head in heads:
        nats, share = entropy(head.weights_QK, attention.visible_QK)
        links = sorted(strongest_links(head.weights_QK, attention.visible_QK), key=lambda link: -link.weight)
        strongest = Text(",  ").join(_link(attention, link) for link in links[:NUM_STRONGEST])
        name = "mean" if head.head is None else str(head.head)
        numbers = ("", "") if math.isnan(nats) else (f"{nats:.2f}", f"{share:.0%}")
        table.add_row(str(head.layer), name, *numbers, strongest)
    return table


def links_table(attention: AttentionMap, head: HeadWeights) -> Table:
    """One line for each query: the keys that it attends to most in one head, or the mean of heads."""
    words = WORDS[attention.kind]
    table = Table(
        title=f"Strongest alignments: {words.title.lower()}, {head.name}",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column(words.queries, overflow="fold", ratio=1)
    for heading in (words.keys, "next"):
        table.add_column(heading, overflow="fold", ratio=1)
        table.add_column("weight", justify="right", no_wrap=True)
    count = min(2, head.weights_QK.shape[1])
    weights_Q2, keys_Q2 = head.weights_QK.topk(count)
    for token, weights, keys in zip(attention.query_tokens, weights_Q2.tolist(), keys_Q2.tolist(), strict=True):
        cells = [visible(token.text)]
        for weight, key in zip(weights, keys, strict=True):
            cells += [visible(attention.key_tokens[key].text), Text(f"{weight:.2f}")]
        table.add_row(*cells)
    return table


def json_line(line: int, example: Attention, chosen: ChosenHeads) -> str:
    """Everything about one example, in one line."""
    texts = (
        {"prompt": example.source} if example.target is None else {"source": example.source, "target": example.target}
    )
    maps = [
        {
            "kind": attention.kind,
            "queries": [_plain_token(token) for token in attention.query_tokens],
            "keys": [_plain_token(token) for token in attention.key_tokens],
            "heads": [_plain_head(attention, head) for head in heads],
        }
        for attention, heads in chosen
    ]
    return json_on_one_line(json.dumps({"line": line, **texts, "maps": maps}, ensure_ascii=False, allow_nan=False))


def _link(attention: AttentionMap, link: Link) -> Text:
    query, key = attention.query_tokens[link.query], attention.key_tokens[link.key]
    return visible(f"{query.text} → {key.text} {link.weight:.2f}")


def _plain_token(token: Token) -> dict[str, object]:
    return token._asdict()


def _plain_head(attention: AttentionMap, head: HeadWeights) -> dict[str, object]:
    nats, share = entropy(head.weights_QK, attention.visible_QK)
    return {
        "layer": head.layer,
        "head": "mean" if head.head is None else head.head,
        "entropy": json_number(nats, 6),
        "entropy_share": json_number(share, 6),
        "strongest": [
            {**link._asdict(), "weight": json_number(link.weight, 6)}
            for link in strongest_links(head.weights_QK, attention.visible_QK)
        ],
        "weights": [[json_number(weight, 6) for weight in row] for row in head.weights_QK.tolist()],
    }
