"""The page of the five-step walk."""

from typing import Any, NamedTuple

import gradio as gr

from transformer.playground.matrices import MAX_CHARACTERS, MAX_COLUMNS, MAX_ROWS, format_matrix, parse_matrices
from transformer.playground.page_text import notice
from transformer.playground.presets import PRESETS, Preset
from transformer.playground.walk import walk
from transformer.playground.walk_html import STEPS, step_html

FIRST = next(iter(PRESETS))
INTRODUCTION = f"""One query of single-head attention, from the dot products to the output. Type other numbers, up to
{MAX_ROWS} rows of {MAX_COLUMNS}; queries, keys and both widths may differ in number. Everything is computed anew, in
float64, by the attention function that the models use."""


class Given(NamedTuple):
    """What the page holds.

    Attributes:
        query, key, value: matrices as they were typed.
        scaled, causal: what is ticked.
        chosen: number, from 1, of the query to follow.
        step: from 1 to 5.
    """

    query: str
    key: str
    value: str
    scaled: bool
    causal: bool
    chosen: int
    step: int


class Shown(NamedTuple):
    """What the page shows of an input.

    Attributes:
        problem: a sentence about input that cannot be used, or nothing.
        queries: how many there are to choose from.
        query: the number of the one shown, from 1.
        steps: HTML.
    """

    problem: str
    queries: int
    query: int
    steps: str


def shown(given: Given) -> Shown:
    """What there is to see for an input."""
    try:
        matrices = parse_matrices(given.query, given.key, given.value)
    except ValueError as error:
        waiting = notice("The steps appear again as soon as the input can be used.", "hint")
        return Shown(str(error), 0, given.chosen, waiting)
    queries = len(matrices.query)
    chosen = min(given.chosen, queries)
    walked = walk(matrices, scaled=given.scaled, causal=given.causal)
    return Shown("", queries, chosen, step_html(walked, chosen - 1, given.step))


def walk_tab() -> None:
    """Build the page inside the current tab."""
    first = PRESETS[FIRST]
    gr.HTML(f"<p>{INTRODUCTION}</p>", elem_classes="lead")
    preset = gr.Radio(list(PRESETS), value=FIRST, label="Example", elem_id="preset", elem_classes="pills")
    about = gr.HTML(notice(first.about, "hint"), elem_id="about")
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            with gr.Group():
                matrices = [
                    gr.Textbox(
                        format_matrix(matrix),
                        label=label,
                        info=info,
                        lines=2,
                        max_lines=MAX_ROWS,
                        max_length=MAX_CHARACTERS,
                        elem_id=elem_id,
                        elem_classes="matrix",
                    )
                    for matrix, label, info, elem_id in zip(
                        first.matrices,
                        ("Q, queries", "K, keys", "V, values"),
                        ("a row each", "a row each, as wide as Q", "a row for each key, as wide as you like"),
                        ("matrix-q", "matrix-k", "matrix-v"),
                        strict=True,
                    )
                ]
            problem = gr.HTML(elem_id="problem")
            with gr.Group():
                scaled = gr.Checkbox(first.scaled, label="Scale by 1 / √dₖ", elem_id="scaled")
                causal = gr.Checkbox(first.causal, label="Causal: the last query sees all keys", elem_id="causal")
            query = gr.Radio(
                _numbers(len(first.matrices.query)), value=first.query, label="Query", elem_id="query",
                elem_classes="pills",
            )  # fmt: skip
        with gr.Column(scale=3, min_width=300):
            step = gr.Radio(
                [(f"{number} {each.name}", number) for number, each in enumerate(STEPS, start=1)],
                value=1,
                label="Step",
                elem_id="step",
                elem_classes="pills",
            )
            steps = gr.HTML(shown(_given(first, 1)).steps, elem_id="steps")
            with gr.Row(elem_classes="moves"):
                back = gr.Button("‹ Back", elem_id="back", size="sm", min_width=80)
                forward = gr.Button("Next ›", elem_id="next", variant="primary", size="sm", min_width=80)

    inputs = [*matrices, scaled, causal, query, step]
    outputs = [problem, query, steps]

    def refresh(*values: Any) -> list[Any]:
        return _updates(shown(Given(*values)))

    def load(name: str, at: int) -> list[Any]:
        given = _given(PRESETS[name], at)
        about = notice(PRESETS[name].about, "hint")
        return [about, *given[:5], *_updates(shown(given))]

    quick: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
    # A text's own `input` comes with letters alone, not with what is deleted or pasted.
    for listen in (*(matrix.change for matrix in matrices), *(other.input for other in inputs[len(matrices) :])):
        # While someone types, only the last state counts.
        listen(refresh, inputs, outputs, trigger_mode="always_last", **quick)
    preset.input(load, [preset, step], [about, *matrices, scaled, causal, *outputs], **quick)
    for button, by in ((back, -1), (forward, 1)):

        def move(*values: Any, by: int = by) -> list[Any]:
            at = min(max(values[-1] + by, 1), len(STEPS))
            return [at, *_updates(shown(Given(*values)._replace(step=at)))]

        button.click(move, inputs, [step, *outputs], **quick)


def _updates(result: Shown) -> list[Any]:
    """For the problem, the choice of the query and the steps."""
    choice = gr.Radio(_numbers(result.queries), value=result.query) if result.queries else gr.skip()
    return [notice(result.problem, "error"), choice, result.steps]


def _numbers(queries: int) -> list[tuple[str, int]]:
    return [(f"q{number}", number) for number in range(1, queries + 1)]


def _given(preset: Preset, step: int) -> Given:
    """The page with an example."""
    query, key, value = map(format_matrix, preset.matrices)
    return Given(query, key, value, preset.scaled, preset.causal, preset.query, step)
