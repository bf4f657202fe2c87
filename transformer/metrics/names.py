"""Names of the validation metrics and which way is better. Imports no torch, so settings can be checked at once."""

from typing import Literal

Direction = Literal["min", "max"]

# Of translated validation sentences; the names are those of the scores in metrics/text.py.
GENERATED_METRICS: dict[str, Direction] = {
    "validation/bleu": "max",
    "validation/chrf": "max",
    "validation/exact_match": "max",
}
TRANSLATION_METRICS: dict[str, Direction] = {
    "validation/loss": "min",
    "validation/perplexity": "min",
    **GENERATED_METRICS,
}
TEXT_METRICS: dict[str, Direction] = {
    "validation/loss": "min",
    "validation/perplexity": "min",
    "validation/bits_per_byte": "min",
}
