"""Numbers of layers and heads as people type them: ``1,3-4``, ``all``."""

import re
from collections.abc import Sequence
from typing import NamedTuple

ALL = "all"
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


class NumberList(NamedTuple):
    """What was typed: numbers from 1, and words.

    Attributes:
        items: in the order typed.
        option: for messages.
    """

    items: tuple[int | str, ...]
    option: str

    def resolved(self, count: int, what: str) -> list[int | str]:
        """The same with ``all`` spelt out, each once.

        Args:
            count: the greatest number that there is.
            what: is numbered, for messages.

        Raises:
            ValueError: a number is greater.
        """
        for item in self.items:
            if isinstance(item, int) and not 1 <= item <= count:
                raise ValueError(f"{self.option} must be from 1 to {count} for {what}, but has {item}.")
        numbers = [number for item in self.items for number in (range(1, count + 1) if item == ALL else [item])]
        return list(dict.fromkeys(numbers))


def parse_numbers(text: str, option: str, words: Sequence[str] = ()) -> NumberList:
    """Read a list of numbers and ranges.

    Args:
        text: such as ``1,3-4`` or ``all``.
        option: for messages.
        words: what else may stand in it.

    Raises:
        ValueError: something else stands in it.
    """
    items: list[int | str] = []
    for part in (part.strip() for part in text.split(",")):
        if part in (ALL, *words):
            items.append(part)
        elif (found := _RANGE.fullmatch(part)) and int(found[1]) <= int(found[2] or found[1]):
            items += range(int(found[1]), int(found[2] or found[1]) + 1)
        else:
            allowed = ", ".join([f"{ALL}", *words])
            raise ValueError(f"{option} must be a list such as 1,3-4 (or {allowed}), but is {text!r}.")
    return NumberList(tuple(items), option)
