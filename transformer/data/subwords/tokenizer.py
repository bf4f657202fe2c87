"""Subword tokenizers: texts to token ids and back, trained on the training texts, kept in one JSON file."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Self

import tokenizers
import xxhash
from tokenizers import models

from transformer.data.subwords.added_tokens import UNUSED, add_tags, check_names, special_id
from transformer.data.subwords.bpe_dropout import BpeDropout
from transformer.data.subwords.config import FileTokenizerConfig, SpecialTokens
from transformer.data.subwords.tokenizer_training import TrainedConfig, cuts_at_words, train_backend

logger = logging.getLogger(__name__)


class Tokenizer:
    """Cuts texts into token ids and puts them together again.

    Trained here, ``<pad>`` is 0, ``<s>`` 1, ``</s>`` 2 and ``<unk>`` 3. Texts never become special tokens or tags:
    ``</s>`` in a text is text. Begin and end are never added here, but by whoever builds a batch.

    Args:
        backend: Of the ``tokenizers`` library; its padding, truncation and random dropout of merges are switched off.
        special_tokens: What the special tokens are called in `backend`.

    Attributes:
        vocab_size: All ids are below: special tokens, padding of the vocabulary and gaps in a file's ids included.
        control_ids: The ids of pad, begin and end.
        silent_ids: Ids that stand for no text: special tokens other than unknown ones.

    Raises:
        ValueError: A special token is not in the vocabulary.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens | None = None) -> None:
        names = SpecialTokens() if special_tokens is None else special_tokens
        # The first is no part of the saved file, the others may be, and cutting texts must not go unnoticed.
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()
        if isinstance(backend.model, models.BPE):
            backend.model.dropout = None
        self._backend = backend
        self._bpe_dropout: BpeDropout | None = None
        self.special_tokens = names
        self.vocab_size = _end_of_ids(backend)
        self.pad_id = special_id(backend, "pad", names.pad)
        self.bos_id = special_id(backend, "begin", names.begin)
        self.eos_id = special_id(backend, "end", names.end)
        self.control_ids = self.pad_id, self.bos_id, self.eos_id
        self.unk_id = None if names.unknown is None else special_id(backend, "unknown", names.unknown)
        added = sorted(backend.get_added_tokens_decoder().items())
        ordinary = [(index, token) for index, token in added if token.content not in names.names]
        self._tags = {
            token.content: i for i, token in ordinary if token.special and not UNUSED.fullmatch(token.content)
        }
        self._symbols = {token.content: index for index, token in ordinary if not token.special}
        # An unknown token is a gap in the text and stays visible; the others are no text.
        specials = {index for index, token in added if token.special}
        self.silent_ids = specials.union(self.control_ids) - {self.unk_id}
        # Symbols that the decoder would take for a spelling of something else, such as "é" for a byte.
        decoder = backend.decoder
        self._verbatim = {
            index: text
            for text, index in self._symbols.items()
            if decoder is not None and decoder.decode([text]) != text
        }

    def __reduce__(self) -> tuple[type[Self], tuple[tokenizers.Tokenizer, SpecialTokens]]:
        return type(self), (self._backend, self.special_tokens)  # a copy of the backend alone has lost its switches

    @classmethod
    def train(cls, config: TrainedConfig, texts: Iterable[str], tags: Sequence[str] = ()) -> Self:
        """Learn a vocabulary from `texts`. The same arguments give the same file, byte for byte.

        Args:
            config: What kind of vocabulary, how large.
            texts: Read once, from first to last; a bounded number of texts and characters is held in memory.
            tags: Tokens that no text contains, such as ``<2de>`` before sources to be translated into German.

        Raises:
            ValueError: A tag or symbol is no token of its own; characters are to be learnt and there are none.
        """
        return cls(train_backend(config, texts, tags))

    @classmethod
    def load(cls, path: str | Path, special_tokens: SpecialTokens | None = None, tags: Sequence[str] = ()) -> Self:
        """Read a ``tokenizer.json``, ours or anybody's.

        Args:
            path: The file, or a folder such as a bundle that has one.
            special_tokens: What its special tokens are called; None stands for our own names.
            tags: Special tokens that are added unless the file has them.

        Raises:
            ValueError: The file is missing, is no tokenizer, lacks a special token, or lacks tags and has gaps in its
                ids; a tag is an ordinary token.
        """
        path = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"The tokenizer file {str(path)!r} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"The tokenizer file {str(path)!r} must be UTF-8, but is not: {error.reason}.") from error
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"The file {str(path)!r} is not a `tokenizers` JSON file: {error}.") from error
        try:
            check_names(SpecialTokens() if special_tokens is None else special_tokens, tags, ())
            gaps = _end_of_ids(backend) - backend.get_vocab_size()
            if new := add_tags(backend, tags):
                if gaps > 0:  # the library would give them ids that are taken
                    raise ValueError(f"Tags can be added only where every id has a token, but {gaps} have none.")
                names, size = ", ".join(map(repr, new)), backend.get_vocab_size()
                logger.info("%s: tags added to the vocabulary, now %d tokens: %s.", path, size, names)
            return cls(backend, special_tokens)
        except ValueError as error:
            raise ValueError(f"In {str(path)!r}: {error}") from error

    @classmethod
    def from_file_config(cls, config: FileTokenizerConfig, tags: Sequence[str] = ()) -> tuple[Self, Self]:
        """Existing tokenizers of source and target, the same object if they share one file.

        Tags are added to the source's vocabulary, as they stand before sources, unless its file has them.

        Raises:
            ValueError: As :meth:`load`; there is to be BPE-dropout and a file does not hold byte-pair encoding; two
                files differ in the ids of pad, begin and end.
        """
        source = target = cls._load_for(config, config.path, tags)
        if config.target_path is not None:
            target = cls._load_for(config, config.target_path, ())
            if source.control_ids != target.control_ids:
                found = f"{source.control_ids} in {config.path!r} and {target.control_ids} in {config.target_path!r}"
                raise ValueError(f"The ids of pad, begin and end must be the same on both sides, but are {found}.")
        return source, target

    @classmethod
    def _load_for(cls, config: FileTokenizerConfig, path: str, tags: Sequence[str]) -> Self:
        tokenizer = cls.load(path, config.special_tokens, tags)
        if config.dropout > 0:
            try:
                tokenizer._bpe_dropout = BpeDropout(tokenizer._backend)
            except ValueError as error:
                raise ValueError(f"In {path!r}: {error}") from error
        return tokenizer

    def save(self, path: str | Path) -> None:
        """Write the JSON file, the same bytes for the same tokenizer on every machine."""
        Path(path).write_bytes(self._backend.to_str(pretty=True).encode())

    def fingerprint(self) -> str:
        """32 hexadecimal digits, the same for the same file and names of special tokens (xxHash)."""
        content = f"{self.special_tokens.model_dump_json()}\n{self._backend.to_str()}"
        return xxhash.xxh3_128_hexdigest(content.encode())

    @property
    def cuts_at_words(self) -> bool:
        """Whether the ids of a text are those of its parts, cut before white space; as a rule so if trained here."""
        return cuts_at_words(self._backend)

    @property
    def kind(self) -> str:
        """The model that cuts words, as the library calls it: ``BPE``, ``Unigram``, ``WordPiece`` or ``WordLevel``."""
        return type(self._backend.model).__name__

    @property
    def normalization(self) -> str | None:
        """What texts go through before they are cut, as the library calls it, such as ``NFC``; None is nothing."""
        normalizer = self._backend.normalizer
        return None if normalizer is None else type(normalizer).__name__

    @property
    def tags(self) -> dict[str, int]:
        """The ids of all special tokens without a role of their own: language tags, and what a foreign file has."""
        return dict(self._tags)

    @property
    def symbols(self) -> dict[str, int]:
        """The ids of all texts that are one token wherever they occur."""
        return dict(self._symbols)

    def tag_id(self, tag: str) -> int:
        """The id of a tag such as ``<2de>``.

        Raises:
            ValueError: There is no such tag.
        """
        if tag not in self._tags:
            known = ", ".join(map(repr, self._tags)) or "none"
            raise ValueError(f"The tag {tag!r} is not in the vocabulary; the tags there are {known}.")
        return self._tags[tag]

    def normalize(self, text: str) -> str:
        """`text` in the vocabulary's normal form: what decoding its tokens gives.

        Trained here, this is exact, but for the unknown characters of a character vocabulary without bytes. Files
        of others may also change spaces when they decode.
        """
        normalizer = self._backend.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without begin and end."""
        return self._ordinary(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without begin and end, computed on all cores."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._ordinary(encoding.ids) for encoding in encodings]

    def sampled(self, text: str, p: float, random: Random) -> list[int]:
        """Token ids of `text` by BPE-dropout: shorter pieces here and there, another time others.

        Args:
            text: What to cut.
            p: Probability that a possible merge is left out in a step; 0 gives :meth:`encode`, 1 single symbols.
            random: The only source of chance.

        Raises:
            ValueError: The vocabulary is not one of byte-pair encoding.
        """
        if self._bpe_dropout is None:
            self._bpe_dropout = BpeDropout(self._backend)
        return self._ordinary(self._bpe_dropout.sample(text, p, random))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`. Special tokens other than ``<unk>`` and negative ids (padding) are left out.

        Raises:
            ValueError: An id is not below `vocab_size`.
        """
        return self._text(self._visible(ids))

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of `ids`, as by :meth:`decode`."""
        visible = [self._visible(row) for row in ids]
        if self._verbatim:
            return [self._text(row) for row in visible]
        return self._backend.decode_batch(visible, skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens with these ids as the vocabulary spells them, special ones included; for looking at."""
        pieces = ((index, self._backend.id_to_token(index)) for index in self._checked(ids))
        return [f"<no token {index}>" if piece is None else piece for index, piece in pieces]

    def _ordinary(self, ids: list[int]) -> list[int]:
        """The same ids, with control tokens spelt character by character.

        Such ids come from files of others alone, whose model may hold ``</s>`` among its pieces.
        """
        if self.silent_ids.isdisjoint(ids):
            return ids
        ordinary: list[int] = []
        for index in ids:
            characters = self.pieces([index])[0] if index in self.silent_ids else ""
            spelt = [token.id for character in characters for token in self._backend.model.tokenize(character)]
            ordinary += [part for part in spelt if part not in self.silent_ids] if characters else [index]
        return ordinary

    def _text(self, ids: list[int]) -> str:
        if self._verbatim.keys().isdisjoint(ids):
            return self._backend.decode(ids, skip_special_tokens=False)
        runs = ((text, list(run)) for text, run in itertools.groupby(ids, key=self._verbatim.get))
        return "".join(
            self._backend.decode(run, skip_special_tokens=False) if text is None else text * len(run)
            for text, run in runs
        )

    def _visible(self, ids: Sequence[int]) -> list[int]:
        return [index for index in self._checked(ids) if index not in self.silent_ids]

    def _checked(self, ids: Sequence[int]) -> list[int]:
        largest = max(ids, default=0)
        if largest >= self.vocab_size:
            raise ValueError(f"Token ids must be below the vocabulary size ({self.vocab_size}), but one is {largest}.")
        return [index for index in ids if index >= 0]


def _end_of_ids(backend: tokenizers.Tokenizer) -> int:
    return max(backend.get_vocab().values(), default=-1) + 1
