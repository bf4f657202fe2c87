"""The page to try a bundle: a text in, outputs with their scores, and the attention of one of them."""

from typing import Any, NamedTuple

import gradio as gr

from transformer.attention_maps.maps import AttentionMap
from transformer.inference.output import Output
from transformer.playground.attention_figure import NAMES, SCRIPT, figure, shown_part
from transformer.playground.page_text import escaped, notice, number
from transformer.playground.search_fields import SearchFields
from transformer.playground.search_form import search_of
from transformer.playground.trial import MAX_CHARACTERS, Found, Trial

MEAN = "mean"
# The server keeps what a visitor looks at for an hour after the page was closed, and of so many visitors only.
FORGOTTEN = notice("This attention is no longer kept. Ask once more for the text above.", "note")


class Looking(NamedTuple):
    """What a visitor looks at: what was found, and the attention of the chosen output, or why there is none."""

    found: Found
    maps: list[AttentionMap]
    problem: str


def text_tab(trial: Trial) -> None:
    """Build the page inside the current tab."""
    verb = "Translate" if trial.translates else "Continue"
    gr.HTML(f"<p>{escaped(trial.name)}.</p>", elem_classes="lead")
    looking = gr.State(None)
    with gr.Row(elem_classes="trial"):
        with gr.Column(scale=2, min_width=300):
            text = gr.Textbox(
                label="Source text" if trial.translates else "Prompt",
                info=f"{MAX_CHARACTERS} characters at most",
                lines=3,
                max_lines=8,
                elem_id="text",
            )
            tags = [("without a tag" if tag is None else tag, tag) for tag in trial.tags]
            tag = gr.Dropdown(tags, value=trial.tags[0], label="Direction", visible=len(tags) > 1, elem_id="tag")
            go = gr.Button(verb, variant="primary", elem_id="go")
            search = SearchFields(trial)
        with gr.Column(scale=3, min_width=300):
            problem = gr.HTML(elem_id="text-problem")
            outputs = gr.HTML(notice("Outputs and their attention appear here.", "hint"), elem_id="outputs")
            with gr.Group(visible=False) as choices:
                chosen = gr.Radio([], label="Attention of output", elem_id="chosen", elem_classes="pills")
                kind = gr.Radio([], label="Attention", elem_id="attention-kind", elem_classes="pills")
                with gr.Row():
                    layer = gr.Dropdown([], label="Layer", elem_id="layer", min_width=110)
                    head = gr.Dropdown([], label="Head", elem_id="head", min_width=110)
            drawing = gr.HTML(elem_id="map", js_on_load=SCRIPT)

    def answer(text: str, tag: str | None, kind: Any, *settings: Any) -> list[Any]:
        try:
            found = trial.search(text, search_of(kind, search.values(settings), trial.own_search), tag)
        except ValueError as error:
            # What was found before stays out of sight: it does not belong to these settings.
            return [notice(_sentence(error), "error"), "", gr.update(visible=False), *[gr.skip()] * 4, "", None]
        seen = _look(trial, found, 0)
        there = {each.kind for each in seen.maps}
        kinds = [(name, kind) for kind, name in NAMES.items() if kind in there]
        first = "cross" if trial.translates else "decoder"
        return [
            notice(" ".join(found.remarks), "note"),
            outputs_html(found, 0),
            gr.update(visible=True),
            gr.Radio([(str(n + 1), n) for n in range(len(found.outputs))], value=0, visible=len(found.outputs) > 1),
            gr.Radio(kinds, value=first, visible=len(kinds) > 1),
            _numbers(seen, first, "layers"),
            _numbers(seen, first, "heads"),
            _draw(seen, first, MEAN, MEAN),
            seen,
        ]

    def choose(looking: Looking | None, chosen: int, kind: str, layer: str, head: str) -> list[Any]:
        if looking is None:
            return [gr.skip(), FORGOTTEN, None]
        seen = _look(trial, looking.found, chosen)
        return [outputs_html(seen.found, chosen), _draw(seen, kind, layer, head), seen]

    def change_kind(looking: Looking | None, kind: str) -> list[Any]:
        if looking is None:
            return [gr.skip(), gr.skip(), FORGOTTEN]
        return [_numbers(looking, kind, "layers"), _numbers(looking, kind, "heads"), _draw(looking, kind, MEAN, MEAN)]

    # One at a time: the model and its machine are there for all visitors.
    computing: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1, "api_visibility": "private"}
    quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    results = [problem, outputs, choices, chosen, kind, layer, head, drawing, looking]
    go.click(answer, [text, tag, *search.inputs], results, show_progress_on=[outputs, drawing], **computing)
    chosen.input(choose, [looking, chosen, kind, layer, head], [outputs, drawing, looking], show_progress="hidden",
                 **computing)  # fmt: skip
    kind.input(change_kind, [looking, kind], [layer, head, drawing], **quick)
    for component in (layer, head):
        component.input(_draw, [looking, kind, layer, head], drawing, **quick)


def outputs_html(found: Found, chosen: int) -> str:
    """The outputs with their scores, best first; ``chosen`` is the number, from 0, of the one that is looked at."""
    rows = "".join(
        f'<tr{" class=now" if place == chosen else ""}><th scope="row">{place + 1}</th>{_output(output)}</tr>'
        for place, output in enumerate(found.outputs)
    )
    return (
        '<div class="wide" tabindex="0"><table class="outputs"><thead><tr><th></th><th scope="col">output</th>'
        '<th scope="col" title="what the search ranked by">score</th>'
        '<th scope="col" title="natural logarithm of the output’s probability">log prob.</th>'
        f'<th scope="col">tokens</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _output(output: Output) -> str:
    text = f"<span>{escaped(output.text)}</span>" if output.text.strip() else "<i>nothing</i>"
    end = "" if output.finished else ' <i title="the limit of its length ended it, not the model">(cut)</i>'
    return (
        f"<td>{text}{end}</td><td>{number(output.score)}</td><td>{number(output.log_probability)}</td>"
        f"<td>{len(output.tokens)}</td>"
    )


def _look(trial: Trial, found: Found, chosen: int) -> Looking:
    try:
        # Of a long text, whole maps of a large model would be hundreds of megabytes for each visitor.
        return Looking(found, [shown_part(each) for each in trial.attention(found, chosen)], "")
    except ValueError as error:
        return Looking(found, [], _sentence(error))


def _draw(looking: Looking | None, kind: str, layer: str, head: str) -> str:
    if looking is None:
        return FORGOTTEN
    for each in looking.maps:
        if each.kind == kind:
            return figure(each, *(None if chosen == MEAN else int(chosen) for chosen in (layer, head)))
    return notice(f"There is no attention to show: {looking.problem}", "note")


def _numbers(looking: Looking, kind: str, what: str) -> Any:
    sizes = [each.weights_LHQK.shape[:2] for each in looking.maps if each.kind == kind]
    number = sizes[0][0 if what == "layers" else 1] if sizes else 0
    return gr.Dropdown([MEAN, *(str(n + 1) for n in range(number))], value=MEAN, visible=number > 1)


def _sentence(error: ValueError) -> str:
    sentence = str(error).removeprefix("line 1: ")
    return sentence[:1].upper() + sentence[1:]
