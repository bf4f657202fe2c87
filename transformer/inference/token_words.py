"""Which words of a text its tokens spell; words are what stands between white space."""

from collections.abc import Sequence

from transformer.data.subwords.tokenizer import Tokenizer


def words_of_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], text: str, *, limit: int | None = None
) -> list[list[int]] | None:
    """The numbers, from 0, of the words of ``text`` that each token spells a part of; none for white space or a tag.

    It works for the tokens that a search chose as well as for those that the tokenizer cuts a text into: a token spells
    what decoding it adds to the text of the tokens before it. A token of some bytes of a character spells that
    character. Where the tokenizer reads another text, as with normalisation or spaces around punctuation, its words are
    matched with those of ``text`` by their order if there are equally many, else by the order of their characters.

    Args:
        tokenizer: of the text.
        ids: tokens.
        text: what they stand for.
        limit: only so many of the first tokens are looked at; it takes time quadratic in their number.

    Returns:
        None if there are neither as many words nor as many characters in the text of the tokens.
    """
    decoded = tokenizer.decode(ids)
    words = _word_numbers(decoded, text)
    if words is None:
        return None
    spelt: list[list[int]] = []
    start = 0
    for count in range(1, len(ids[:limit]) + 1):
        before = tokenizer.decode(ids[:count])
        end = max(start, _common_length(before, decoded))
        # Bytes that are no character yet read otherwise than the character that they will be.
        pending = int(not decoded.startswith(before))
        numbers = {words[place] for place in range(start, min(end + pending, len(words)))}
        spelt.append(sorted(number for number in numbers if number is not None))
        start = end
    return spelt


def _word_numbers(decoded: str, text: str) -> list[int | None] | None:
    """The word of ``text`` that each character of ``decoded`` belongs to; None for white space."""
    if len(decoded.split()) == len(text.split()):
        text = decoded
    numbers = [number for number, word in enumerate(text.split()) for _ in word]
    visible = sum(not character.isspace() for character in decoded)
    if visible != len(numbers):
        return None
    rest = iter(numbers)
    return [None if character.isspace() else next(rest) for character in decoded]


def _common_length(text: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    if other.startswith(text):
        return len(text)
    return next(
        (place for place, (mine, yours) in enumerate(zip(text, other, strict=False)) if mine != yours),
        min(len(text), len(other)),
    )
