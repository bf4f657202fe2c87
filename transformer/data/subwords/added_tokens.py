"""Tokens that a vocabulary has beside the learnt ones: special tokens, language tags, the user's symbols, padding."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import tokenizers

from transformer.data.subwords.config import SpecialTokens

UNUSED = re.compile(r"<unused\d+>")


def check_names(special_tokens: SpecialTokens, tags: Sequence[str], symbols: Sequence[str]) -> None:
    """Every special token, tag and symbol must be a text of its own.

    Raises:
        ValueError: One is empty, listed twice, or has two roles.
    """
    roles: dict[str, str] = dict.fromkeys(special_tokens.names, "a special token")
    for kind, names in (("tag", tags), ("symbol", symbols)):
        for name in names:
            if not name:
                raise ValueError(f"A {kind} must be a text, but is empty.")
            if name in roles:
                taken = "listed twice" if roles[name] == f"a {kind}" else f"{roles[name]} too"
                raise ValueError(f"The {kind} {name!r} must be a token of its own, but is {taken}.")
            roles[name] = f"a {kind}"


def special_id(backend: tokenizers.Tokenizer, role: str, name: str) -> int:
    """The id of the special token with a role such as ``pad``.

    Raises:
        ValueError: The vocabulary has no token of that name.
    """
    index = backend.token_to_id(name)
    if index is None:
        specials = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
        raise ValueError(
            f"The `{role}` token {name!r} is not in the vocabulary; the special tokens there are "
            f"{', '.join(map(repr, specials)) or 'none'}."
        )
    return index


def add_symbols(backend: tokenizers.Tokenizer, symbols: Sequence[str]) -> None:
    """Make each of `symbols` one token wherever it occurs in normalised text.

    Raises:
        ValueError: The vocabulary spells another text so.
    """
    for symbol in symbols:
        if backend.token_to_id(symbol) is not None and backend.decoder.decode([symbol]) != symbol:
            raise ValueError(
                f"The symbol {symbol!r} must be a token of its own, but that is how this vocabulary spells other "
                f"bytes; write it differently, such as {f'<{symbol}>'!r}."
            )
    backend.add_tokens([tokenizers.AddedToken(symbol, special=False, normalized=True) for symbol in symbols])


def add_tags(backend: tokenizers.Tokenizer, tags: Sequence[str]) -> list[str]:
    """Make each of `tags` a special token, and return those that were none before.

    Raises:
        ValueError: A tag is an ordinary token already.
    """
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    new = [tag for tag in tags if tag not in special]
    for tag in new:
        if backend.token_to_id(tag) is not None:
            raise ValueError(
                f"The tag {tag!r} must be a token of its own, but is an ordinary token of the vocabulary; "
                f"write it differently, such as {f'<2{tag}>'!r}."
            )
    backend.add_special_tokens(new)
    return new


def pad_vocabulary(backend: tokenizers.Tokenizer, multiple: int) -> None:
    """Let the vocabulary grow by unused special tokens to a multiple."""
    names = (f"<unused{number}>" for number in itertools.count())
    free = (name for name in names if backend.token_to_id(name) is None)
    backend.add_special_tokens(list(itertools.islice(free, -backend.get_vocab_size() % multiple)))


def between(texts: Iterable[str], pattern: re.Pattern[str]) -> Iterator[str]:
    """The parts of `texts` between the matches of `pattern`."""
    for text in texts:
        yield from filter(None, pattern.split(text))


def any_of(symbols: Sequence[str]) -> re.Pattern[str]:
    """Matches each of `symbols`; where several begin, the longest."""
    return re.compile("|".join(map(re.escape, sorted(symbols, key=len, reverse=True))))
