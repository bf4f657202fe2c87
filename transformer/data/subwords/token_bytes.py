"""What each token of a vocabulary adds to the text, in bytes."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, decoders

from transformer.data.subwords.character_vocabulary import BYTE_TOKENS
from transformer.data.subwords.tokenizer import Tokenizer

_Step = dict[str, Any]  # of a decoder, as the file of a tokenizer has it

# In byte-level vocabularies printable Latin-1 characters stand for their own bytes, those from U+0100 on for others.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = sorted(set(range(0x100)).difference(_PRINTABLE))
_BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
_BYTE_OF_TOKEN = {token: bytes([byte]) for byte, token in enumerate(BYTE_TOKENS)}


def token_bytes(tokenizer: Tokenizer, ids: Sequence[int] | None = None) -> list[bytes | None]:
    """The bytes of each id; None for those that decoding leaves out: special tokens, tags, ids without a token.

    Without ``ids`` it is those of the whole vocabulary, in order.

    Put together, the bytes of tokens are the UTF-8 of the text that they decode to, but for this:

    - Decoders of some files leave out one space at the start or the end of a text; here the token has it.
    - A WordPiece piece such as ``##s`` at the start of a text, where none belongs, is left as it is spelt.
    - Bytes that are no UTF-8 become U+FFFD, and so do all of a run of tokens such as ``<0xE2>`` that is not UTF-8.

    Raises:
        ValueError: The kind of decoder is none of those that give every token a text of its own.
    """
    backend = tokenizer._backend
    decoder = backend.decoder
    steps = [_JOIN_BY_SPACE] if decoder is None else _steps(json.loads(decoder.__getstate__()))
    symbols = set(tokenizer.symbols.values())
    texts: list[bytes | None] = []
    for index in range(tokenizer.vocab_size) if ids is None else ids:
        piece = backend.id_to_token(index)
        if piece is None or index in tokenizer.silent_ids:
            texts.append(None)
        elif index in symbols and decoder is not None and decoder.decode([piece]) != piece:
            texts.append(piece.encode())  # the tokenizer keeps the decoder away from it
        else:
            texts.append(_decoded(piece, steps))
    return texts


_JOIN_BY_SPACE: _Step = {"type": None}


def _steps(decoder: _Step) -> list[_Step]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _steps(part)]


def _decoded(piece: str, steps: Sequence[_Step]) -> bytes:
    """What a token adds in the middle of a text."""
    text: str | bytes = piece
    fused = False
    for step in steps:
        if isinstance(text, bytes):
            break
        match step:
            case {"type": None}:
                text = " " + text
            case {"type": "ByteLevel"}:
                known = all(character in _BYTE_OF_CHARACTER for character in text)
                text = bytes(map(_BYTE_OF_CHARACTER.__getitem__, text)) if known else text.encode()
            case {"type": "ByteFallback"}:
                text = _BYTE_OF_TOKEN.get(text.upper().replace("X", "x"), text)
            case {"type": "Replace", "pattern": pattern, "content": content}:
                sought = pattern["String"] if "String" in pattern else Regex(pattern["Regex"])
                text = decoders.Replace(sought, content).decode([text])
            case {"type": "Metaspace", "replacement": replacement}:
                text = text.replace(replacement, " ")
            case {"type": "WordPiece", "prefix": prefix, "cleanup": cleanup}:
                # After another piece, of which it says nothing.
                text = decoders.WordPiece(prefix, cleanup).decode(["", text])
            case {"type": "BPEDecoder", "suffix": suffix}:
                text = text.replace(suffix, " ")
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": content, "start": start, "stop": stop}:
                if not fused:  # else it is for the text as a whole
                    text = decoders.Strip(content, start, stop).decode([text])
            case {"type": kind}:
                raise ValueError(
                    f"Phrases need a vocabulary whose tokens each have a text, but its decoder is {kind!r}."
                )
    return text if isinstance(text, bytes) else text.encode()
