"""What tokens add to a text, arranged so that an automaton reads all of them at once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transformer.decoding.word_characters import INSIDE, word_characters


class TokenTexts:
    """The bytes that each token of a vocabulary adds to the text; never changed.

    Args:
        tokens: the bytes of each id; None for a token that adds none, or that a search never takes.

    Attributes:
        vocab_size: number of ids.
        ids: (N,) the ids of tokens with at least one byte, in the order of their bytes. All other arrays are in this
            order, and what they number by N is called a place.
        first: (N,) their first bytes.
        group_starts: (257,) where the tokens with each first byte begin.
        well_formed: (N,) whether the token is UTF-8 from a character's beginning on; it may end inside of one.
        inner: the places of tokens that begin inside of a character.
        completes: (states of :func:`word_characters`, len(inner)) whether such a token may come there in UTF-8.
    """

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self.vocab_size = len(tokens)
        self._tokens = tuple(token or b"" for token in tokens)
        order = sorted((token, index) for index, token in enumerate(self._tokens) if token)
        self.ids = np.array([index for _, index in order], dtype=np.int64)
        lengths = np.array([len(token) for token, _ in order], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        content = np.frombuffer(b"".join(token for token, _ in order), dtype=np.uint8)
        # For the first byte, the second and so on: the places of tokens that have one, and what it is.
        self._columns: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]] = []
        places = np.arange(len(order))
        while len(places) > 0:
            self._columns.append((places, content[starts[places] + len(self._columns)]))
            places = places[lengths[places] > len(self._columns)]
        self.first = content[starts]
        self.group_starts = np.searchsorted(self.first, np.arange(257))
        self.inner = slice(int(self.group_starts[0x80]), int(self.group_starts[0xC0]))
        # A state more, for what is not UTF-8.
        characters = word_characters()
        broken = len(characters.next)
        strict = np.full((broken + 1, 256), broken, dtype=np.int16)
        strict[:broken] = np.where(characters.valid, characters.next, broken)
        self.well_formed: npt.NDArray[np.bool_] = self.walk(strict, np.array([INSIDE]))[0] != broken
        self.completes = self.walk(strict, np.arange(broken), self.inner) != broken

    def __getitem__(self, token: int) -> bytes:
        """The bytes of one token, maybe none."""
        return self._tokens[token]

    def walk(
        self, table: npt.NDArray[np.int16], states: npt.NDArray[np.int64], places: slice = slice(None)
    ) -> npt.NDArray[np.int16]:
        """Read tokens in each of the states.

        Args:
            table: (all states, 256) the state after a byte.
            states: (S,) states to begin in.
            places: which tokens.

        Returns:
            (S, tokens): the states afterwards.
        """
        begin, end, _ = places.indices(len(self.ids))
        flat, width = table.reshape(-1), max(end - begin, 0)
        reached = np.repeat(states.astype(np.int16)[:, None], width, axis=1)
        for holders, content in self._columns:
            first, last = np.searchsorted(holders, (begin, end)) if width < len(self.ids) else (0, len(holders))
            if first >= last:
                break
            going, following = holders[first:last] - begin, content[first:last]
            if len(going) == width:
                reached = flat.take(reached.astype(np.intp) * 256 + following)
            else:
                reached[:, going] = flat.take(reached.take(going, axis=1).astype(np.intp) * 256 + following)
        return reached
