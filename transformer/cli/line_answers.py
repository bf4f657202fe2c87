"""What the line tools answer, as plain text or as one JSON object a line."""

import functools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer.cli.line_requests import LineRequest, Terms
from transformer.cli.lines import json_on_one_line

if TYPE_CHECKING:  # torch takes seconds
    from transformer.data.subwords.tokenizer import Tokenizer
    from transformer.decoding.phrases import PhraseMatcher
    from transformer.decoding.token_texts import TokenTexts
    from transformer.inference.alignment import Alignment
    from transformer.inference.output import Output


class Answer(NamedTuple):
    """One line of standard output, and one of the file of alignments if there is one."""

    text: str
    alignment: str = ""


class JsonAnswers:
    """Makes JSON objects of outputs.

    Args:
        tokenizer: of the outputs.
        source_key: what the text of the request is called.
        output_key: what the text of an output is called.
    """

    def __init__(self, tokenizer: "Tokenizer", source_key: str, output_key: str) -> None:
        from transformer.inference.constraints import KEPT_MATCHERS

        self._tokenizer, self._source_key, self._output_key = tokenizer, source_key, output_key
        self._matcher = functools.lru_cache(KEPT_MATCHERS)(self._new_matcher)

    def __call__(
        self,
        number: int,
        request: LineRequest,
        outputs: Sequence["Output"],
        *,
        with_all: bool = False,
        alignments: Sequence["Alignment"] | None = None,
        with_attention: bool = False,
    ) -> str:
        """The object of one line.

        Args:
            number: of the line.
            request: what was asked.
            outputs: best first.
            with_all: list all of them under ``nbest``.
            alignments: of each output.
            with_attention: the weights as well.
        """
        found = []
        for place, output in enumerate(outputs):
            each = self._of_output(output, request.required)
            if alignments is not None:
                each["alignment"] = alignments[place].links
                if with_attention:
                    each["attention"] = {
                        "source_tokens": alignments[place].source_tokens,
                        "target_tokens": alignments[place].target_tokens,
                        "weights": [[json_number(weight, 6) for weight in row] for row in alignments[place].weights],
                    }
            found.append(each)
        record: dict[str, Any] = {"line": number}
        if request.id is not None:
            record["id"] = request.id
        record[self._source_key] = request.text
        record |= found[0]
        if with_all:
            record["nbest"] = found
        return json_on_one_line(json.dumps(record, ensure_ascii=False, allow_nan=False))

    def _of_output(self, output: "Output", required: Terms) -> dict[str, Any]:
        ends = [self._tokenizer.eos_id] * (len(output.token_log_probabilities) - len(output.tokens))
        record: dict[str, Any] = {
            self._output_key: output.text,
            "score": json_number(output.score),
            "log_probability": json_number(output.log_probability),
            "finished": output.finished,
            "tokens": self._tokenizer.pieces([*output.tokens, *ends]),
            "token_log_probabilities": [json_number(each) for each in output.token_log_probabilities],
        }
        if required:
            record["missing"] = [term for term in required if not self._has(output.tokens, term)]
        return record

    def _has(self, tokens: Sequence[int], term: tuple[str, ...]) -> bool:
        matcher = self._matcher(term)
        return matcher.accepted_at_end(functools.reduce(matcher.advance, tokens, matcher.start))

    def _new_matcher(self, term: tuple[str, ...]) -> "PhraseMatcher":
        from transformer.decoding.phrases import PhraseMatcher

        return PhraseMatcher(self._token_texts, term)

    @functools.cached_property
    def _token_texts(self) -> "TokenTexts":
        from transformer.data.subwords.token_bytes import token_bytes
        from transformer.decoding.token_texts import TokenTexts

        return TokenTexts(token_bytes(self._tokenizer))


def json_number(value: float, digits: int | None = None) -> float | None:
    """The number, rounded if ``digits`` are given; None for infinity and NaN, which JSON does not have."""
    if not math.isfinite(value):
        return None
    return value if digits is None else round(value, digits)
