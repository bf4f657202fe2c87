"""Names of the validation metrics and which way is better. Imports no torch, so settings can be checked at once."""

from typing import Literal

Direction = Literal["min", "max"]

TRANSLATION_METRICS: dict[str, Direction] = {
    "validation/loss": "min",
    "validation/perplexity": "min",
    "validation/bleu": "max",
    "validation/chrf": "max",
    "validation/exact_match": "max",
}
TEXT_METRICS: dict[str, Direction] = {
    "validation/loss": "min",
    "validation/perplexity": "min",
    "validation/bits_per_byte": "min",
}
