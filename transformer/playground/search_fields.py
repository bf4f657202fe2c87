"""The fields of the page in which a search is chosen."""

from typing import Any

import gradio as gr

from transformer.playground.search_form import (
    LABELS,
    MAX_BEAM,
    MAX_OUTPUTS,
    MAX_SAMPLES,
    MAX_TOKENS,
    WHOLE,
    Kind,
    fields,
    filled,
    values_of,
)
from transformer.playground.trial import Trial

KINDS: dict[str, Kind] = {"Greedy": "greedy", "Beam": "beam", "Sampling": "sample", "Minimum Bayes risk": "mbr"}
CONTINUATION_TOKENS = 64

_INFO = {
    "num_best": f"shown, up to {MAX_OUTPUTS}",
    "size": f"beginnings kept, up to {MAX_BEAM}",
    "length_penalty": "above 0 for longer outputs",
    "coverage_penalty": "for source left out",
    "temperature": "0: most probable token",
    "top_k": "most probable tokens; 0: all",
    "top_p": "share of probability; 1: all",
    "min_p": "share of the best; 0: all",
    "seed": "decides the draws",
    "samples": f"drawn, up to {MAX_SAMPLES}",
    "repetition_penalty": "above 1: new tokens",
    "no_repeat_ngram": "its length n; 0: none",
}


class SearchFields:
    """A choice of the kind of search, and a field for each setting, of which only those of the chosen kind show."""

    def __init__(self, trial: Trial) -> None:
        kinds = {label: kind for label, kind in KINDS.items() if trial.translates or kind != "mbr"}
        own = trial.own_search
        self.kind = gr.Radio(list(kinds.items()), value=own.name, label="Search", elem_id="kind", elem_classes="pills")
        with gr.Row(elem_classes="fields"):
            self._fields = {name: _field(name, trial) for name in LABELS if name in _names(trial)}
        self.kind.input(
            lambda kind: [gr.update(visible=name in fields(kind)) for name in self._fields],
            self.kind,
            list(self._fields.values()),
            show_progress="hidden",
            queue=False,
            api_visibility="private",
        )

    @property
    def inputs(self) -> list[Any]:
        """The components: the kind, and then the settings."""
        return [self.kind, *self._fields.values()]

    def values(self, inputs: tuple[Any, ...]) -> dict[str, float | None]:
        """The settings by name, from the values of :attr:`inputs` without the kind."""
        return filled(dict(zip(self._fields, inputs, strict=True)))


def _names(trial: Trial) -> set[str]:
    """The settings that the model's searches have."""
    kinds = [kind for kind in KINDS.values() if trial.translates or kind != "mbr"]
    names = {name for kind in kinds for name in fields(kind)}
    return names if trial.translates else names - {"coverage_penalty"}


def _field(name: str, trial: Trial) -> Any:
    own = trial.own_search
    value, info = values_of(own)[name], _INFO.get(name)
    most = min(MAX_TOKENS, trial.max_length - 1)  # one more, and the model could not read it again
    if name == "max_new_tokens":
        info = f"of an output, up to {most}"
        value = min(most, value or (most if trial.translates else CONTINUATION_TOKENS))
    shared: dict[str, Any] = {
        "value": value,
        "label": LABELS[name],
        "info": info,
        "visible": name in fields(own.name),
        "elem_id": name.replace("_", "-"),
        "min_width": 150,
    }
    return gr.Number(step=1 if name in WHOLE else 0.1, **shared)
