"""The steps of an evaluation: check everything, score each bundle, compare, report."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from transformer.cli.device import choose_device
from transformer.cli.evaluate import EvaluateConfig
from transformer.cli.evaluation_json import paired_line, report_json, score_line, spread_line, to_json
from transformer.cli.evaluation_markdown import to_markdown
from transformer.cli.evaluation_report import EvaluationReport, EvaluationSet, SystemReport
from transformer.cli.evaluation_tables import report_tables
from transformer.cli.machine import machine_in_words, versions
from transformer.decoding.config import DecodingConfig
from transformer.inference.comparison import Candidate, first_difference, load_candidates
from transformer.inference.own_files import PairFiles, TextFiles, read_translations
from transformer.inference.split import PairSplit, SplitScores, TextSplit, score_on
from transformer.metrics.breakdown import extremes, length_breakdown
from transformer.metrics.significance import paired_bootstrap
from transformer.metrics.spread import Spread, spread
from transformer.metrics.text import all_scores


def run_evaluation(config: EvaluateConfig, console: Console, command: str) -> None:
    """Scores go to standard output, each as soon as it is known; tables to the console.

    Args:
        config: the settings.
        console: for people.
        command: what was typed, for the report.

    Raises:
        ValueError: for what does not fit together, before anything is scored.
    """
    outputs = _output_paths(config)
    with_file = config.baseline is not None and Path(config.baseline).is_file()
    if config.baseline is not None and not Path(config.baseline).exists():
        raise ValueError(
            f"`baseline` must be a bundle's folder or a file of translations, but {config.baseline} does not exist."
        )
    written = [*outputs, *([] if config.report is None else [Path(config.report)])]
    _check_places(written)
    _check_inputs([*config.own_files, *([config.baseline] if with_file and config.baseline else [])], written)
    device = choose_device(config.accelerator)
    others = [] if config.baseline is None or with_file else [config.baseline]
    candidates = load_candidates([*config.bundle, *others], config.data, config.split, _own_files(config))
    own, texts = candidates[: len(config.bundle)], candidates[0].texts
    _refuse_without_effect(config, texts)
    for candidate in candidates:
        longest = candidate.bundle.config.model.max_length
        if config.stride is not None and config.stride > longest:
            raise ValueError(
                f"`stride` must be at most the `max_length` ({longest}) of {candidate.folder}, but is {config.stride}."
            )
    several = len(own) > 1 or config.baseline is not None
    score = partial(
        _score,
        decoding=config.decoding,
        bleu_tokenize=config.bleu_tokenize,
        stride=config.stride,
        max_tokens_per_batch=config.max_tokens_per_batch,
        device=device,
    )
    baseline = None
    if config.baseline is not None:
        if with_file:
            assert isinstance(texts, PairSplit), "refused with the settings without effect"
            scored = _score_file(Path(config.baseline), texts, config)
        else:
            scored = score(candidates[-1])
        _print_scores(scored, config.baseline)
        search = None if with_file else _search(config, candidates[-1])
        baseline = _described(config, config.baseline, search, scored, texts, None)
    systems = []
    for number, candidate in enumerate(own):
        scored = score(candidate)
        if outputs:
            outputs[number].write_text("".join(f"{line}\n" for line in scored.outputs), encoding="utf-8")
        _print_scores(scored, candidate.folder if several else None)
        systems.append(_described(config, candidate.folder, _search(config, candidate), scored, texts, baseline))
        for paired in systems[-1].paired:
            _print(paired_line(scored.split, candidate.folder, config.baseline or "", paired))
    report = EvaluationReport(
        EvaluationSet.of(texts, _data(config, own[0])),
        systems,
        baseline,
        _spreads(own, systems, console),
        command,
        machine_in_words(device, "float32"),
        versions(),
    )
    for each in report.spreads:
        _print(spread_line(texts.split, each))
    for part in report_tables(report):
        console.print(part)
    if config.report is not None:
        text = report_json(report) if config.report.endswith(".json") else to_markdown(report)
        Path(config.report).write_text(text, encoding="utf-8")


def _output_paths(config: EvaluateConfig) -> list[Path]:
    """Where the translations of each bundle go; of several, ``out.txt`` becomes ``out.1.txt``, ``out.2.txt``, ..."""
    if config.output is None:
        return []
    path = Path(config.output)
    if len(config.bundle) == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{number}{path.suffix}") for number in range(1, len(config.bundle) + 1)]


def _own_files(config: EvaluateConfig) -> PairFiles | TextFiles | None:
    if config.source is not None:
        assert config.reference is not None, "checked with the settings"
        return PairFiles(Path(config.source), tuple(map(Path, config.reference)), config.tag)
    return None if config.text is None else TextFiles(tuple(map(Path, config.text)))


def _search(config: EvaluateConfig, candidate: Candidate) -> DecodingConfig:
    return candidate.bundle.config.decoding if config.decoding is None else config.decoding


def _data(config: EvaluateConfig, candidate: Candidate) -> dict[str, Any]:
    """What was scored on, for the report."""
    if config.source is not None:
        tag = {} if config.tag is None else {"tag": config.tag}
        return {"source": config.source, "reference": list(config.reference or ()), **tag}
    if config.text is not None:
        return {"text": list(config.text)}
    return (config.data or candidate.bundle.config.data).to_plain()


def _check_inputs(read: Sequence[str], written: Sequence[Path]) -> None:
    for name in read:
        if Path(name).resolve() in {path.resolve() for path in written}:
            raise ValueError(f"`output` and `report` must not be written over what is read, but {name} is both.")


def _check_places(paths: Sequence[Path]) -> None:
    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(f"`output` and `report` must be different files, but both are {paths[-1]}.")
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path} must be a file to write, but is a folder.")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{path} must be in a folder that exists, but {path.absolute().parent} does not.")


def _refuse_without_effect(config: EvaluateConfig, texts: PairSplit | TextSplit) -> None:
    """Settings that this kind of model does not heed."""
    if isinstance(texts, PairSplit):
        if config.stride is not None:
            raise ValueError("`stride` is for language models and has no effect on a translation model; leave it out.")
        return
    for name in ("baseline", "decoding", "bleu_tokenize", "length_borders", "output"):
        if getattr(config, name) is not None:
            raise ValueError(f"`{name}` is about translations and has no effect on a language model; leave it out.")


def _score(candidate: Candidate, **settings: Any) -> SplitScores:
    return score_on(candidate.bundle, candidate.texts, **settings)


def _score_file(path: Path, texts: PairSplit, config: EvaluateConfig) -> SplitScores:
    test_set = f"the {texts.split} split" if config.reference is None else config.reference[0]
    lines = read_translations(path, len(texts.references), test_set)
    more = texts.more_references
    scores = all_scores(lines, texts.references, config.bleu_tokenize or texts.bleu_tokenize, more_references=more)
    return SplitScores(texts.split, scores, texts.sources, lines, texts.references, more)


def _described(
    config: EvaluateConfig,
    name: str,
    decoding: DecodingConfig | None,
    scored: SplitScores,
    texts: PairSplit | TextSplit,
    baseline: SystemReport | None,
) -> SystemReport:
    """The scores with everything that is known about them."""
    if isinstance(texts, TextSplit):
        return SystemReport(name, scored)
    tokenize = config.bleu_tokenize or texts.bleu_tokenize
    lines = scored.sources, scored.outputs, scored.references
    more, number = scored.more_references, config.num_sentences
    lengths = length_breakdown(*lines, more_references=more, borders=config.length_borders, bleu_tokenize=tokenize)
    sentences = extremes(*lines, number=number, more_references=more) if number > 0 else None
    if baseline is None:
        return SystemReport(name, scored, decoding, lengths, sentences)
    others = baseline.scored.outputs
    paired = paired_bootstrap(
        others, scored.outputs, scored.references, tokenize, more_references=more, num_resamples=config.num_resamples
    )
    against = extremes(*lines, number=number, more_references=more, baseline=others) if number > 0 else None
    return SystemReport(name, scored, decoding, lengths, sentences, paired, against)


def _spreads(own: Sequence[Candidate], systems: Sequence[SystemReport], console: Console) -> list[Spread]:
    """Mean and deviation over bundles that differ in nothing but their weights."""
    if len(own) < 2:
        return []
    for candidate in own[1:]:
        path = first_difference(own[0].bundle, candidate.bundle)
        if path is not None:
            console.print(
                f"no mean over the bundles: {own[0].folder} and {candidate.folder} differ in {path}.", highlight=False
            )
            return []
    return spread([system.scored.scores for system in systems])


def _print_scores(scored: SplitScores, name: str | None) -> None:
    for score in scored.scores:
        _print(score_line(scored.split, score, name))


def _print(line: dict[str, Any]) -> None:
    print(to_json(line), flush=True)
