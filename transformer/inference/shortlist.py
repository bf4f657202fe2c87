"""The target tokens that a source may be translated with: a few hundred instead of the whole vocabulary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transformer.data.subwords.token_bytes import token_bytes
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.translation_table import PairSample, learn_translation_table

SHORTLIST = "shortlist.safetensors"
FORMAT = "trueformer shortlist 1"


class BatchShortlist(NamedTuple):
    """The union of the shortlists of a batch, and which of it each source may have.

    Attributes:
        columns_C: token ids in ascending order, int64.
        allowed_BC: bool.
    """

    columns_C: np.ndarray
    allowed_BC: np.ndarray


@dataclass(frozen=True)
class Shortlist:
    """A lexical shortlist (Jean et al. 2015, section 3.2): of each source token its most probable translations.

    A source's shortlist consists of those of its tokens and the tokens that are always on it: the control tokens, the
    unknown token, all single bytes (so that any text can be spelt, where the vocabulary has them), and the most
    frequent tokens of the target language. With one vocabulary for both sides, also of the source's own tokens, so that
    names can be copied. It depends on that source alone.

    Attributes:
        always: token ids, sorted.
        starts, targets: translations of source token s are ``targets[starts[s] : starts[s + 1]]``, the best one first.
        joint: whether both sides share one vocabulary.
        target_vocab_size: all ids are below.
    """

    always: np.ndarray
    starts: np.ndarray
    targets: np.ndarray
    joint: bool
    target_vocab_size: int

    @classmethod
    def learn(
        cls,
        pairs: PairSample,
        source: Tokenizer,
        target: Tokenizer,
        *,
        per_token: int = 100,
        frequent: int = 200,
        progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
    ) -> Self:
        """Learn it from token ids of parallel texts (:func:`learn_translation_table`).

        Args:
            pairs: the ids, without control tokens.
            source, target: the tokenizers; the same object if there is one vocabulary for both sides.
            per_token: translations of each source token at most.
            frequent: the most frequent tokens of the targets, always on the list.
            progress: told what is being done, and how much of it.

        Raises:
            ValueError: there is no pair of texts that are not empty.
        """
        table = learn_translation_table(
            pairs.sources, pairs.targets, source.vocab_size, target.vocab_size, progress=progress
        )
        starts, targets = table.best(per_token, source.vocab_size)
        counts = np.bincount(np.concatenate(pairs.targets), minlength=target.vocab_size)
        most = np.argsort(-counts, kind="stable")[:frequent]
        always = np.union1d(most[counts[most] > 0], _spelling(target))
        return cls(always.astype(np.int64), starts, targets, source is target, target.vocab_size)

    def for_source(self, source: Sequence[int]) -> np.ndarray:
        """The target ids of one source, in ascending order.

        Args:
            source: its token ids; control tokens and tags make no difference.
        """
        return np.flatnonzero(self._allowed([source])[0])

    def for_batch(self, sources: Sequence[Sequence[int]]) -> BatchShortlist:
        """The shortlists of several sources."""
        allowed_BV = self._allowed(sources)
        columns_C = np.flatnonzero(allowed_BV.any(0))
        return BatchShortlist(columns_C, np.ascontiguousarray(allowed_BV[:, columns_C]))

    def _allowed(self, sources: Sequence[Sequence[int]]) -> np.ndarray:
        allowed_BV = np.zeros((len(sources), self.target_vocab_size), dtype=np.bool_)
        allowed_BV[:, self.always] = True
        for row_V, source in zip(allowed_BV, sources, strict=True):
            for token in set(source):
                row_V[self.targets[self.starts[token] : self.starts[token + 1]]] = True
            if self.joint:
                row_V[list(source)] = True
        return allowed_BV

    def save(self, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
        """Write it into a bundle's folder, with what tells its tokenizers from others."""
        tensors = {"always": self.always, "starts": self.starts, "targets": self.targets}
        save_file(tensors, folder / SHORTLIST, metadata={"format": FORMAT, "tokenizers": _names(source, target)})

    @classmethod
    def load(cls, folder: Path | str, source: Tokenizer, target: Tokenizer) -> Self:
        """Read it from a bundle's folder.

        Raises:
            ValueError: there is none, or it is damaged, or was made for other tokenizers.
        """
        path = Path(folder, SHORTLIST)
        if not path.is_file():
            raise ValueError(f"{folder} has no {SHORTLIST}; transformer-shortlist makes one.")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise ValueError(f"{path} is not a shortlist that this version can read.")
                always, starts, targets = (file.get_tensor(name) for name in ("always", "starts", "targets"))
        except SafetensorError as error:
            raise ValueError(f"{path} is not a readable shortlist: {error}.") from error
        if metadata.get("tokenizers") != _names(source, target):
            raise ValueError(f"{path} was made for other tokenizers; make it anew with transformer-shortlist.")
        size = target.vocab_size
        if not (
            starts.shape == (source.vocab_size + 1,)
            and starts[0] == 0
            and starts[-1] == len(targets)
            and bool((np.diff(starts) >= 0).all())
            and all(((ids >= 0) & (ids < size)).all() for ids in (always, targets))
        ):
            raise ValueError(f"{path} is damaged: its numbers do not fit together.")
        return cls(always, starts, targets, source is target, size)


def _spelling(tokenizer: Tokenizer) -> np.ndarray:
    """Control tokens, the unknown token, and all tokens of one byte."""
    ids = [*tokenizer.control_ids, *(() if tokenizer.unk_id is None else (tokenizer.unk_id,))]
    try:
        texts = token_bytes(tokenizer)
    except ValueError:  # tokens of somebody else's kind: what they spell is not known
        return np.array(ids)
    return np.array(ids + [index for index, text in enumerate(texts) if text is not None and len(text) == 1])


def _names(source: Tokenizer, target: Tokenizer) -> str:
    return f"{source.fingerprint()} {target.fingerprint()}"
