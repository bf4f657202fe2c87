"""What an evaluation found, and how its parts are called wherever they are shown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer.data.corpora.rows import Split
from transformer.decoding.config import DecodingConfig
from transformer.inference.split import PairSplit, SplitScores, TextSplit
from transformer.metrics.breakdown import Extremes, LengthBreakdown, Sentence
from transformer.metrics.significance import Estimate, PairedScore
from transformer.metrics.spread import Spread

ALWAYS_SHOWN = ("size", "samples", "seed")  # of a search, also where they are what they are by default


@dataclass(frozen=True)
class EvaluationSet:
    """What all systems were scored on.

    Attributes:
        split: which part of a corpus; None for files of the user's own.
        data: the settings of the corpus, or the files.
        counts: how much it is.
    """

    split: Split | None
    data: Mapping[str, Any]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, texts: PairSplit | TextSplit, data: Mapping[str, Any]) -> "EvaluationSet":
        """Count texts."""
        if isinstance(texts, PairSplit):
            num_references = 1 + len(texts.more_references)
            return cls(texts.split, data, {"num_sentences": len(texts.sources), "num_references": num_references})
        return cls(texts.split, data, {"num_texts": len(texts.texts), "num_characters": sum(map(len, texts.texts))})

    @property
    def name(self) -> str:
        """Such as ``the test split``."""
        return "files of your own" if self.split is None else f"the {self.split} split"

    @property
    def origin(self) -> str:
        """Such as ``the test split of phrases`` or ``news.en, news.de``."""
        if self.split is not None:
            return f"the {self.split} split of {self.data['name']}"
        return ", ".join(name for value in self.data.values() for name in _names(value))

    @property
    def size(self) -> str:
        """Such as ``1,000 sentences, one reference each``."""
        if "num_texts" in self.counts:
            texts = self.counts["num_texts"]
            return f"{texts:,} text{'s' * (texts > 1)}, {self.counts['num_characters']:,} characters"
        references = self.counts["num_references"]
        each = "one reference" if references == 1 else f"{references} references"
        return f"{self.counts['num_sentences']:,} sentences, {each} each"


@dataclass(frozen=True)
class SystemReport:
    """What was found about one bundle, or about a file of translations.

    Attributes:
        name: its folder or file.
        scored: scores and texts.
        decoding: the search of a bundle that translates, or None.
        lengths, sentences: by source length, and the best and worst ones; None where not asked for, or of texts.
        paired: its scores against the baseline's; none without a baseline.
        against: the sentences that lost and won most against the baseline's, or None.
    """

    name: str
    scored: SplitScores
    decoding: DecodingConfig | None = None
    lengths: LengthBreakdown | None = None
    sentences: Extremes | None = None
    paired: list[PairedScore] = field(default_factory=list)
    against: Extremes | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """Everything that an evaluation found.

    Attributes:
        test_set: what all were scored on.
        systems: the bundles.
        baseline: what they are compared with, or None.
        spreads: mean and deviation of the scores of several bundles of the same settings; none otherwise.
        command: what was typed.
        machine: where it ran, in words.
        versions: of the software.
    """

    test_set: EvaluationSet
    systems: list[SystemReport]
    baseline: SystemReport | None
    spreads: list[Spread]
    command: str
    machine: str
    versions: Mapping[str, str]

    @property
    def everything(self) -> list[SystemReport]:
        """The baseline, if there is one, and the bundles."""
        return [*([] if self.baseline is None else [self.baseline]), *self.systems]


def search_in_words(decoding: DecodingConfig) -> str:
    """Such as ``beam (size 5, length_penalty 0.6)``: the settings that are not what they are by default."""
    changed = decoding.model_dump(mode="json", exclude_defaults=True)
    shown = [
        f"{name} {value}"
        for name, value in decoding.to_plain().items()
        if name != "name" and (name in changed or name in ALWAYS_SHOWN)
    ]
    return f"{decoding.name} ({', '.join(shown)})" if shown else decoding.name


def versions_in_words(versions: Mapping[str, str]) -> str:
    """Such as ``python 3.13.1, torch 2.13.0``."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def interval(estimate: Estimate) -> list[float]:
    """Both ends of a 95% confidence interval."""
    return [estimate.mean - estimate.margin, estimate.mean + estimate.margin]


def span(shortest: int, longest: int) -> str:
    """Such as ``8 to 12``."""
    return str(shortest) if shortest == longest else f"{shortest} to {longest}"


def titled_sentences(system: SystemReport) -> Iterator[tuple[str, list[Sentence]]]:
    """The lists of sentences that are there, with their headings."""
    if system.sentences is not None:
        yield "Worst sentences (by chrF)", system.sentences.worst
        yield "Best sentences (by chrF)", system.sentences.best
    if system.against is not None:
        if system.against.worst:
            yield "Most lost against the baseline (in chrF)", system.against.worst
        if system.against.best:
            yield "Most won against the baseline (in chrF)", system.against.best


def sentence_heading(sentence: Sentence) -> str:
    """Such as ``sentence 17: chrF 31.2``, with the difference from a baseline's."""
    heading = f"sentence {sentence.line}: chrF {sentence.chrf:.1f}"
    return heading if sentence.difference is None else f"{heading} ({sentence.difference:+.1f})"


def sentence_texts(sentence: Sentence) -> list[tuple[str, str]]:
    """The texts of a sentence with their names."""
    texts = [("source", sentence.source), ("output", sentence.output)]
    texts += [] if sentence.baseline is None else [("baseline", sentence.baseline)]
    texts.append(("reference", sentence.reference))
    return texts + [(f"reference {number}", text) for number, text in enumerate(sentence.more_references, start=2)]


def _names(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value
