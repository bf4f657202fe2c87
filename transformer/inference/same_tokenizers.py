"""Models that work together must mean the same by a token id."""

from transformer.bundle import Bundle


def check_same_tokenizers(bundle: Bundle, other: Bundle, name: str) -> None:
    """Refuse to let models work together whose token ids mean different things.

    Args:
        bundle: the first.
        other: another one.
        name: what to call that, such as "the draft".

    Raises:
        ValueError: their tokenizers differ.
    """
    for side in ("source", "target"):
        one, two = getattr(bundle, f"{side}_tokenizer"), getattr(other, f"{side}_tokenizer")
        if one.fingerprint() != two.fingerprint():
            raise ValueError(
                f"models that work together must have the same tokenizers, but the {side} tokenizers of the first and "
                f"of {name} differ."
            )
