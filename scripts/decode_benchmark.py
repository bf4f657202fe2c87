"""Our search beside Hugging Face's `generate` and CTranslate2: the same weights, ids in, ids out, interleaved."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import torch
import typer
from omegaconf import OmegaConf
from rich.console import Console

from peers import contest, ours
from peers.settings import Continue, Task, Translate, forced
from transformer.bundle import Bundle, load_bundle
from transformer.cli.compose import config_folder
from transformer.cli.console import one_line_errors
from transformer.data.corpora.files import read_lines
from transformer.metrics.text import bleu
from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

OURS, HUGGING_FACE, CTRANSLATE = "ours float32", "Hugging Face", "CTranslate2"
PACKAGES = {HUGGING_FACE: "transformers", CTRANSLATE: "ctranslate2"}
LOGITS_WITHIN, LOG_PROBABILITIES_WITHIN = 1e-4, 1e-3
LM_VOCABULARY, LM_PROMPT, LM_TOKENS, LM_BATCHES = 4000, 32, 200, (1, 16)


class Part(StrEnum):
    """What is measured."""

    THROUGHPUT = "throughput"
    FORCED = "forced"
    LATENCY = "latency"
    LANGUAGE_MODEL = "language-model"


class Contest(NamedTuple):
    """What is decoded, and by whom."""

    bundle: Bundle
    sources: list[list[int]]
    references: list[str]
    contestants: Mapping[str, Translate]
    repeats: int

    @property
    def peers(self) -> list[str]:
        """All but ours."""
        return [name for name in self.contestants if not name.startswith("ours")]


def decode(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained translation model.")],
    folder: Annotated[Path, typer.Argument(help="Multi30k: test_2016_flickr.en.gz, test_2016_flickr.de.gz.")],
    lines: Annotated[int, typer.Option(min=1, help="Sentences of the test set.")] = 1000,
    beam: Annotated[int, typer.Option(min=1, help="Beginnings kept; 1 is greedy.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Sentences at once, of like lengths.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Of everybody.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; all take their turn in each.")] = 3,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an output at most.")] = 100,
    forced_length: Annotated[int, typer.Option(min=1, help="Tokens of every output in the part `forced`.")] = 20,
    latency_lines: Annotated[int, typer.Option(min=1, help="Sentences one by one in the part `latency`.")] = 100,
    part: Annotated[list[Part] | None, typer.Option(help="May be repeated.", show_default="all")] = None,
    peers: Annotated[bool, typer.Option(help="Hugging Face and CTranslate2 too, where installed.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Search translations of a trained model: sentences/s, latency, tokens/s of a language model; beside the peers.

    All have the same weights, are asked for the same, and are checked to compute the same before anything is timed.
    """
    with one_line_errors(), TemporaryDirectory() as exports:
        torch.set_num_threads(threads)
        console = Console(width=None if Console().is_terminal else 200)
        installed = {name for name, package in PACKAGES.items() if peers and importlib.util.find_spec(package)}
        for name in PACKAGES if peers else ():
            if name not in installed:
                console.print(f"{name} is not installed and left out; `make peers` installs it.")
        loaded = load_bundle(bundle)
        if not isinstance(loaded.model, EncoderDecoder):
            raise ValueError(f"{bundle} must hold a translation model, but holds a language model.")
        longest = loaded.model.config.max_length
        if max(max_tokens, forced_length) > longest:
            raise ValueError(f"outputs must be of {longest} tokens at most, as many as the model can.")
        sources, references = read(loaded, folder, lines)
        contestants = our_precisions(loaded.model, loaded)
        contestants |= their_copies(console, loaded, sources, installed, Path(exports), threads, max_tokens)
        setting = Contest(loaded, sources, references, contestants, repeats)
        parts = list(Part) if part is None else part
        figures: dict[str, Any] = {}
        if Part.THROUGHPUT in parts:
            task = Task(beam, batch, max_tokens)
            figures["throughput"] = throughput(console, setting, task, "beam {beam}, batches of {batch}", scored=True)
        if Part.FORCED in parts:
            task = Task(beam, batch, forced_length, forced_length)
            title = f"beam {{beam}}, batches of {{batch}}, every output of {forced_length} tokens"
            figures["forced"] = throughput(console, setting, task, title, scored=False)
        if Part.LATENCY in parts:
            figures["latency"] = latency(console, setting, Task(beam, 1, max_tokens), latency_lines)
        if Part.LANGUAGE_MODEL in parts:
            for rows in LM_BATCHES:
                figures[f"language_model_batch_{rows}"] = language_model(console, installed, rows, repeats)
    if json_file is not None:
        versions = {PACKAGES[name]: importlib.metadata.version(PACKAGES[name]) for name in sorted(installed)}
        settings = {"lines": len(sources), "beam": beam, "batch": batch, "threads": threads, "repeats": repeats}
        everything = {"settings": settings, "versions": versions | {"torch": torch.__version__}, "figures": figures}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def read(bundle: Bundle, folder: Path, lines: int) -> tuple[list[list[int]], list[str]]:
    """Source ids with end tokens, sorted by length, and the references in the same order."""
    texts: dict[str, list[str]] = {"en": [], "de": []}
    for side, taken in texts.items():
        for line in islice(read_lines(folder / f"test_2016_flickr.{side}.gz"), lines):
            if isinstance(line, ValueError):
                raise line
            taken.append(line)
    tokenizer, references = bundle.source_tokenizer, texts["de"]
    ids = [[*line, tokenizer.eos_id] for line in tokenizer.encode_batch(texts["en"])]
    order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
    return [ids[number] for number in order], [references[number] for number in order]


def our_precisions(model: EncoderDecoder, bundle: Bundle) -> dict[str, Translate]:
    """Our search in each precision; the first is the one that the peers' outputs are compared with."""
    return {OURS: ours.translating(model, bundle)}


def their_copies(
    console: Console,
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    installed: set[str],
    folder: Path,
    threads: int,
    max_tokens: int,
) -> dict[str, Translate]:
    """The peers with our weights, compared with ours in float32 on a sample of the sources.

    Raises:
        ValueError: for a model that they have no equal of, or if they compute anything else than ours.
    """
    assert isinstance(bundle.model, EncoderDecoder)
    model, tokenizer, contestants = bundle.model, bundle.target_tokenizer, {}
    special = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    sample = sources[:: max(1, len(sources) // 64)]
    greedy = Task(beam=1, batch=32, max_tokens=max_tokens)
    outputs = ours.translating(model, bundle)(sample, greedy)
    reading = forced(model, sample, outputs, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
    checked = []
    if HUGGING_FACE in installed:
        from peers import hugging_face

        theirs = hugging_face.to_m2m100(model, pad_id=tokenizer.pad_id, **special)
        contestants[HUGGING_FACE] = hugging_face.translating(theirs)
        checked.append((HUGGING_FACE, "logits", hugging_face.deviation(theirs, reading), LOGITS_WITHIN))
    if CTRANSLATE in installed:
        import ctranslate2

        from peers import ctranslate

        unknown = tokenizer.pad_id if tokenizer.unk_id is None else tokenizer.unk_id
        ctranslate.save_for_ctranslate(folder, model, unk_id=unknown, **special)
        float32, int8 = (
            ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=1, intra_threads=threads)
            for kind in ("float32", "int8")
        )
        name = f"{CTRANSLATE} float32"
        contestants[name] = ctranslate.translating(float32)
        contestants[f"{CTRANSLATE} int8"] = ctranslate.translating(int8)
        difference = ctranslate.deviation(float32, reading, tokenizer.eos_id)
        checked.append((name, "log probabilities", difference, LOG_PROBABILITIES_WITHIN))
    for name, what, difference, within in checked:
        different = sum(one != other for one, other in zip(outputs, contestants[name](sample, greedy), strict=True))
        if difference >= within or different:
            raise ValueError(
                f"{name} does not compute the same: its {what} differ by up to {difference:.1e} (below {within:.0e} "
                f"is rounding), and so do {different} of {len(outputs)} greedy outputs."
            )
        console.print(f"{name}: {what} within {difference:.1e} of ours, {len(outputs)} greedy outputs equal.")
    return contestants


def throughput(console: Console, setting: Contest, task: Task, title: str, *, scored: bool) -> list[dict[str, Any]]:
    """All sentences in batches."""
    runs = {name: lambda translate=translate: translate(setting.sources, task)
            for name, translate in setting.contestants.items()}  # fmt: skip
    timed = contest.in_turn(runs, setting.repeats)
    decoded = setting.bundle.target_tokenizer.decode_batch
    scores = None
    if scored:
        scores = {name: bleu(decoded(one.outputs), setting.references).value for name, one in timed.items()}
    figures = contest.rows(timed, ours=OURS, bleu=scores)
    title = f"{len(setting.sources)} sentences, {title.format(beam=task.beam, batch=task.batch)}"
    contest.show(console, title, figures, peers=setting.peers)
    return figures


def latency(console: Console, setting: Contest, task: Task, lines: int) -> list[dict[str, Any]]:
    """Sentences of all lengths one by one, each in a call of its own."""
    sources = setting.sources[:: max(1, len(setting.sources) // lines)][:lines]
    runs = {name: lambda translate=translate: [translate([source], task)[0] for source in sources]
            for name, translate in setting.contestants.items()}  # fmt: skip
    figures = contest.rows(contest.in_turn(runs, setting.repeats), ours=OURS)
    contest.show(console, f"{len(sources)} sentences one by one, beam {task.beam}", figures, peers=setting.peers)
    return figures


def language_model(console: Console, installed: set[str], rows: int, repeats: int) -> list[dict[str, Any]]:
    """Greedy continuations by a model of random weights, as `configs/model/lm_tiny.yaml` describes it."""
    torch.manual_seed(0)
    plain = OmegaConf.to_container(OmegaConf.load(config_folder() / "model" / "lm_tiny.yaml"))
    assert isinstance(plain, dict)
    model = DecoderOnly(DecoderOnlyConfig.from_plain(plain), LM_VOCABULARY).eval()
    prompts = torch.randint(LM_VOCABULARY, (rows, LM_PROMPT)).tolist()
    contestants: dict[str, Continue] = {OURS: ours.continuing(model, eos_id=0)}
    if HUGGING_FACE in installed:
        from peers import hugging_face

        contestants[HUGGING_FACE] = hugging_face.continuing(hugging_face.to_gpt2(model), eos_id=0)
    runs = {name: lambda go_on=go_on: go_on(prompts, LM_TOKENS) for name, go_on in contestants.items()}
    timed = contest.in_turn(runs, repeats)
    if different := [name for name, one in timed.items() if one.outputs != timed[OURS].outputs]:
        raise ValueError(f"{' and '.join(different)} continued a prompt in another way than ours.")
    figures = contest.rows(timed, ours=OURS)
    title = f"language model, batch {rows}: {LM_TOKENS} tokens after {LM_PROMPT}, greedy"
    contest.show(console, title, figures, peers=[name for name in contestants if name != OURS])
    return figures
