"""The base class of every configuration object. Nothing else lives here."""

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen group of settings that refuses unknown keys, wrong types, and numbers that are not finite.

    Strict: the string ``"3"`` is not a number and ``1`` is not a truth value; an integer where a float is expected
    is accepted. Plain data (what YAML and JSON give) is read with :meth:`from_plain`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Self:
        """Build from dictionaries, lists, strings, numbers, truth values and None.

        Lists become tuples where the field is one. Raises ``pydantic.ValidationError``.
        """
        return cls.model_validate_json(json.dumps(data))

    def to_plain(self) -> dict[str, Any]:
        """The inverse of :meth:`from_plain`."""
        plain: dict[str, Any] = self.model_dump(mode="json")
        return plain
