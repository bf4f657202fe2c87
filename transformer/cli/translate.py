"""``transformer-translate``: one translation for each line of standard input or of files."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli import search_options as search
from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_answers import Answer, JsonAnswers
from transformer.cli.line_options import (
    Banned,
    Device,
    Ensemble,
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
from transformer.cli.line_requests import LineRequest, TranslationLine, as_utf8, parse_json_line, phrases
from transformer.cli.lines import on_one_line, read_lines
from transformer.cli.session import answer_lines

if TYPE_CHECKING:
    from transformer.inference.alignment import Alignment
    from transformer.inference.glossary import Glossary
    from transformer.inference.output import Output as SearchOutput
    from transformer.inference.translator import Translator

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def translate(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained translation model.", show_default=False)],
    files: Files = None,
    input_format: Input = "text",
    output: Output = "text",
    num_best: NumBest = None,
    alignments: Annotated[
        Path | None,
        typer.Option(
            help="File for word alignments, one line a line, as in 0-0 1-2: source word, target word. They are in the "
            "objects of --output json as well.",
            rich_help_panel="Input and output",
            show_default=False,
        ),
    ] = None,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention",
            help="With --output json: alignments and attention weights.",
            rich_help_panel="Input and output",
        ),
    ] = False,
    tag: Annotated[
        str | None,
        typer.Option(
            help="Direction, for a model of several, such as <2de>.",
            rich_help_panel="Input and output",
            show_default=False,
        ),
    ] = None,
    beam_size: search.BeamSize = None,
    normalization: search.Normalization = None,
    length_penalty: search.LengthPenalty = None,
    coverage_penalty: search.CoveragePenalty = None,
    patience: search.Patience = None,
    groups: search.Groups = None,
    diversity: search.Diversity = None,
    sample: search.Sample = False,
    temperature: search.Temperature = None,
    top_k: search.TopK = None,
    top_p: search.TopP = None,
    min_p: search.MinP = None,
    epsilon: search.Epsilon = None,
    seed: search.Seed = None,
    mbr: search.Mbr = None,
    mbr_utility: search.MbrUtility = None,
    min_new_tokens: search.MinNewTokens = None,
    max_new_tokens: search.MaxNewTokens = None,
    min_length_factor: search.MinLengthFactor = None,
    max_length_factor: search.MaxLengthFactor = None,
    repetition_penalty: search.RepetitionPenalty = None,
    no_repeat_ngram: search.NoRepeatNgram = None,
    glossary: Annotated[
        Path | None,
        typer.Option(
            help="Lines of source term, TAB, target term, or several with | between. Where a line has the one, its "
            "translation has the other.",
            rich_help_panel="Phrases",
            show_default=False,
        ),
    ] = None,
    ordered: Ordered = False,
    banned: Banned = None,
    prefix: Annotated[
        str | None,
        typer.Option(help="What every translation begins with.", rich_help_panel="Phrases", show_default=False),
    ] = None,
    ensemble: Ensemble = None,
    device: Device = "auto",
    precision: Precision = "float32",
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Only tokens that the bundle's shortlist has for a line, which transformer-shortlist makes: faster "
            "for lines one by one. Lines with phrases, of the glossary or of their own, are searched in all tokens.",
            rich_help_panel="Model and speed",
        ),
    ] = False,
    threads: Threads = None,
    max_tokens_per_batch: Annotated[
        int, typer.Option(min=1, help="Padded source tokens searched at once.", rich_help_panel="Model and speed")
    ] = 2048,
    lines_at_once: LinesAtOnce = 256,
) -> None:
    """Translate text, one line per line: line k of the output translates line k of the input, blank for blank.

    Translations go to standard output, everything else to standard error. At a terminal, each line typed is translated.

    The search is the bundle's own, changed by the options given.
    """
    with one_line_errors():
        given = search.given_options(context.params)  # beam_size, sample and so on
        search.check_options(given)
        check_line_options(input_format, output, num_best, ordered, with_phrases=glossary is not None)
        if attention and output == "text":
            raise ValueError("--attention needs --output json; alignments as plain text go to --alignments FILE.")
        if alignments is not None:
            _check_not_read(alignments, files or [], {"--glossary": glossary, "--banned": banned})
        for name, value in (("--banned", banned), ("--prefix", prefix)):
            if shortlist and value is not None:
                raise ValueError(
                    f"--shortlist has no effect with {name}, which makes all lines be searched in all tokens; "
                    "leave one of them out."
                )
        tag = None if tag is None else as_utf8(tag, "--tag")
        prefix = "" if prefix is None else as_utf8(prefix, "--prefix")
        all_banned = () if banned is None else phrases(read_lines([banned]))
        set_threads(threads)

        # Imported late: torch takes seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.inference.constraints import Constraints
        from transformer.inference.shortlist import Shortlist
        from transformer.inference.translator import Translator

        set_up_logging()
        terms = None if glossary is None else _load_glossary(glossary)
        where = choose_device(device)
        loaded, *others = (load_for(folder, precision, where) for folder in (bundle, *(ensemble or [])))
        tokens = Shortlist.load(bundle, loaded.source_tokenizer, loaded.target_tokenizer) if shortlist else None
        translator = Translator(loaded, where, ensemble=others, shortlist=tokens)
        decoding = search.chosen_search(translator.bundle.config.decoding, given)
        search.check_num_best(decoding, num_best or 1)
        if glossary is not None:
            check_phrases_fit(decoding, "--glossary")
        as_json = JsonAnswers(translator.bundle.target_tokenizer, "source", "text")

        def request_of(line: str, number: int) -> LineRequest:
            asked = TranslationLine(text=line)
            if input_format == "json":
                asked = parse_json_line(TranslationLine, line, number)
            if asked.required:
                check_phrases_fit(decoding, f"line {number}: 'required'")
            required = () if terms is None else tuple(terms.terms_in(asked.text))
            return LineRequest.of(asked, tag=tag, prefix=prefix, required=required, ordered=ordered, banned=all_banned)

        def answer(lines: list[str], first: int) -> list[Answer]:
            requests = [request_of(line, number) for number, line in enumerate(lines, start=first)]
            texts = [request.text for request in requests]
            tags = None if all(request.tag is None for request in requests) else [request.tag for request in requests]
            found = translator.search(
                texts,
                decoding,
                num_best=num_best or 1,
                constraints=[Constraints(each.required, each.ordered, each.banned, each.prefix) for each in requests],
                tags=tags,
                max_tokens_per_batch=max_tokens_per_batch,
                first_line=first,
            )
            aligned = None
            if alignments is not None or attention:
                aligned = _aligned(translator, texts, found, tags, max_tokens_per_batch, first)
            answers = []
            for place, (request, outputs) in enumerate(zip(requests, found, strict=True)):
                links = None if aligned is None else aligned[place]
                text = on_one_line(outputs[0].text)
                if output == "json":
                    text = as_json(
                        first + place,
                        request,
                        outputs,
                        with_all=num_best is not None,
                        alignments=links,
                        with_attention=attention,
                    )
                answers.append(Answer(text, "" if links is None else links[0].pharaoh))
            return answers

        greeting = f"Each line is translated by {bundle}."
        answer_lines(files or [], answer, at_once=lines_at_once, greeting=greeting, alignments=alignments)


def _check_not_read(alignments: Path, files: Sequence[Path], options: Mapping[str, Path | None]) -> None:
    """Refuse to overwrite what the command reads. Raises ValueError."""
    if not alignments.exists():
        return
    if any(file.exists() and alignments.samefile(file) for file in files):
        raise ValueError(f"--alignments {alignments} is a file to be translated; name another.")
    for name, file in options.items():
        if file is not None and file.exists() and alignments.samefile(file):
            raise ValueError(f"--alignments {alignments} is the file of {name}; name another.")


def _load_glossary(path: Path) -> "Glossary":
    from transformer.inference.glossary import Glossary

    return Glossary.load(path)


def _aligned(
    translator: "Translator",
    texts: Sequence[str],
    found: "Sequence[Sequence[SearchOutput]]",
    tags: Sequence[str | None] | None,
    max_tokens_per_batch: int,
    first: int,
) -> "list[list[Alignment]]":
    """The alignments of all outputs of each line."""
    from transformer.inference.alignment import align

    places = [place for place, outputs in enumerate(found) for _ in outputs]
    alignments = iter(
        align(
            translator,
            [texts[place] for place in places],
            [output.tokens for outputs in found for output in outputs],
            tags=None if tags is None else [tags[place] for place in places],
            max_tokens_per_batch=max_tokens_per_batch,
            lines=[first + place for place in places],
        )
    )
    return [list(islice(alignments, len(outputs))) for outputs in found]


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
