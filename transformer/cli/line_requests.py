"""What is asked of each line: plain text, or a JSON object with demands of its own."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from pydantic import Field, ValidationError

from transformer.config import Config

Terms = tuple[tuple[str, ...], ...]


class PromptLine(Config):
    """The keys of a line for ``transformer-generate``."""

    text: str
    id: str | int | None = Field(None, description="it is in the answer as it is")
    required: tuple[str | tuple[str, ...], ...] = Field((), description="phrases, or lists of which one is enough")
    ordered: bool | None = Field(None, description="whether required phrases must come in this order")
    banned: tuple[str, ...] = Field((), description="phrases that must not occur")


class TranslationLine(PromptLine):
    """The keys of a line for ``transformer-translate``."""

    tag: str | None = Field(None, description="direction, for a model of several")
    prefix: str | None = Field(None, description="what the translation begins with")


_EXPECTED: Mapping[str, str] = {
    "id": "text or a whole number",
    "required": "a list of texts and of lists of texts",
    "banned": "a list of texts",
    "ordered": "true or false",
}

LineT = TypeVar("LineT", bound=PromptLine)


@dataclass(frozen=True)
class LineRequest:
    """A line and what is asked of it, options that hold for all lines included."""

    text: str
    id: str | int | None
    tag: str | None
    prefix: str
    required: Terms
    ordered: bool
    banned: tuple[str, ...]

    @classmethod
    def of(cls, line: PromptLine, *, tag: str | None = None, prefix: str = "", ordered: bool = False,
           required: Terms = (), banned: tuple[str, ...] = ()) -> Self:  # fmt: skip
        """What a line says, and where it says nothing what holds for all; phrases of both."""
        own_tag, own_prefix = (line.tag, line.prefix) if isinstance(line, TranslationLine) else (None, None)
        own_required = tuple((term,) if isinstance(term, str) else term for term in line.required)
        return cls(
            text=line.text,
            id=line.id,
            tag=tag if own_tag is None else own_tag,
            prefix=prefix if own_prefix is None else own_prefix,
            required=(*required, *own_required),
            ordered=ordered if line.ordered is None else line.ordered,
            banned=(*banned, *line.banned),
        )


def parse_json_line(kind: type[LineT], line: str, number: int) -> LineT:
    """Read one line of JSON.

    Raises:
        ValueError: it is none, or has unknown keys or wrong values; the message names the line.
    """
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise ValueError(f"line {number}: {_sentence(kind, line, error)}") from error


def as_utf8(argument: str, option: str) -> str:
    """An argument of the command line as UTF-8, whatever encoding the locale made Python read it in."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{option} must be UTF-8, but is not: {error.reason}.") from error


def phrases(lines: Iterable[str]) -> tuple[str, ...]:
    """One phrase a line; blank lines are none."""
    return tuple(line.strip() for line in lines if line.strip())


def _sentence(kind: type[PromptLine], line: str, error: ValidationError) -> str:
    detail = error.errors(include_context=False)[0]
    if detail["type"] == "json_invalid":
        return f"must be a JSON object, but is not: {detail['msg'].removeprefix('Invalid JSON: ')}."
    if not detail["loc"]:
        return f"must be a JSON object, but is {_shown(json.loads(line))}."
    key = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return f"{key!r} is not a key of a line; known are {', '.join(kind.model_fields)}."
    if detail["type"] == "missing":
        return f"{key!r} must be given, but is missing."
    return f"{key!r} must be {_EXPECTED.get(key, 'text')}, but is {_shown(json.loads(line)[key])}."


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]} ..."
