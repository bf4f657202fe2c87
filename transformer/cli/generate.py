"""``transformer-generate``: continue each line of standard input or of files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli import search_options as search
from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_answers import Answer, JsonAnswers
from transformer.cli.line_options import (
    Banned,
    Device,
    Files,
    Input,
    LinesAtOnce,
    NumBest,
    Ordered,
    Output,
    Precision,
    Threads,
    check_line_options,
    check_phrases_fit,
    load_for,
    set_threads,
)
from transformer.cli.line_requests import LineRequest, PromptLine, as_utf8, parse_json_line, phrases
from transformer.cli.lines import read_lines, with_escapes, write_in_step
from transformer.cli.session import answer_lines

if TYPE_CHECKING:
    from transformer.inference.output import Output as SearchOutput

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def generate(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained language model.", show_default=False)],
    files: Files = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="One prompt, instead of reading any; may contain line breaks.",
            rich_help_panel="Input and output",
            show_default=False,
        ),
    ] = None,
    input_format: Input = "text",
    output: Output = "text",
    num_best: NumBest = None,
    beam_size: search.BeamSize = None,
    normalization: search.Normalization = None,
    length_penalty: search.LengthPenalty = None,
    patience: search.Patience = None,
    groups: search.Groups = None,
    diversity: search.Diversity = None,
    sample: search.Sample = False,
    temperature: search.Temperature = None,
    top_k: search.TopK = None,
    top_p: search.TopP = None,
    min_p: search.MinP = None,
    epsilon: search.Epsilon = None,
    seed: search.SeedBesideDraft = None,
    min_new_tokens: search.MinNewTokens = None,
    max_new_tokens: search.MaxNewTokens = None,
    repetition_penalty: search.RepetitionPenalty = None,
    no_repeat_ngram: search.NoRepeatNgram = None,
    ordered: Ordered = False,
    banned: Banned = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            help="A smaller bundle with the same tokenizer that guesses ahead: the same distribution, in fewer passes.",
            rich_help_panel="Model and speed",
            show_default=False,
        ),
    ] = None,
    draft_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens guessed ahead by --draft.", rich_help_panel="Model and speed", show_default="4"
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "float32",
    threads: Threads = None,
    max_tokens_per_batch: Annotated[
        int,
        typer.Option(
            min=1, help="Padded tokens of prompts and continuations at once.", rich_help_panel="Model and speed"
        ),
    ] = 8192,
    lines_at_once: LinesAtOnce = 64,
) -> None:
    """Continue texts, one line per line: prompt and continuation, line breaks in them as \\n, blank for blank.

    With --prompt the text is written as it is. Continuations go to standard output, everything else to standard error.
    At a terminal, each line typed is continued.

    Tokens are drawn at random, as the bundle's own search does, or, if that does not, at a temperature of 0.8. Where
    neither the bundle nor --max-new-tokens sets a limit, a continuation is as long as the model can.
    """
    with one_line_errors():
        given = search.given_options(context.params)  # beam_size, sample and so on
        search.check_options(given)
        check_line_options(input_format, output, num_best, ordered, with_phrases=False)
        if prompt is not None and (files or input_format == "json"):
            raise ValueError(f"give either --prompt or {'files' if files else '--input json'}, not both.")
        if draft_tokens is not None and draft is None:
            raise ValueError("--draft-tokens has no effect without --draft; leave it out.")
        prompt = None if prompt is None else as_utf8(prompt, "--prompt")
        all_banned = () if banned is None else phrases(read_lines([banned]))
        set_threads(threads)

        # Imported late: torch takes seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.inference.constraints import Constraints
        from transformer.inference.generator import Generator

        set_up_logging()
        where = choose_device(device)
        loaded = load_for(bundle, precision, where)
        if draft is None:
            generator = Generator(loaded, where)
        else:
            generator = Generator(
                loaded, where, draft=load_for(draft, precision, where), draft_tokens=draft_tokens or 4
            )
        decoding = search.chosen_search(loaded.config.decoding, given, otherwise="sample", temperature=0.8)
        search.check_num_best(decoding, num_best or 1)
        as_json = JsonAnswers(loaded.target_tokenizer, "prompt", "continuation")

        def request_of(line: str, number: int) -> LineRequest:
            asked = PromptLine(text=line)
            if input_format == "json":
                asked = parse_json_line(PromptLine, line, number)
            if asked.required:
                check_phrases_fit(decoding, f"line {number}: 'required'")
            return LineRequest.of(asked, ordered=ordered, banned=all_banned)

        def continue_all(requests: list[LineRequest], first: int) -> "list[list[SearchOutput]]":
            return generator.search(
                [request.text for request in requests],
                decoding,
                num_best=num_best or 1,
                constraints=[Constraints(each.required, each.ordered, each.banned) for each in requests],
                max_tokens_per_batch=max_tokens_per_batch,
                first_line=first,
            )

        if prompt is not None:
            request = LineRequest.of(PromptLine(text=prompt), ordered=ordered, banned=all_banned)
            [outputs] = continue_all([request], 1)
            if output == "json":
                text = as_json(1, request, outputs, with_all=num_best is not None)
            else:
                text = prompt + outputs[0].text
            write_in_step([(sys.stdout.buffer, text.split("\n"))])
            return

        def answer(lines: list[str], first: int) -> list[Answer]:
            requests = [request_of(line, number) for number, line in enumerate(lines, start=first)]
            found = continue_all(requests, first)
            if output == "text":
                return [
                    Answer(with_escapes(request.text + outputs[0].text))
                    for request, outputs in zip(requests, found, strict=True)
                ]
            return [
                Answer(as_json(number, request, outputs, with_all=num_best is not None))
                for number, (request, outputs) in enumerate(zip(requests, found, strict=True), start=first)
            ]

        answer_lines(files or [], answer, at_once=lines_at_once, greeting=f"Each line is continued by {bundle}.")


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
