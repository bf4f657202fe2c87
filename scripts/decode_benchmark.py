"""Our search beside Hugging Face's `generate` and CTranslate2: the same weights, ids in, ids out, interleaved."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, get_args

import torch
import typer
from omegaconf import OmegaConf
from rich.console import Console

from multi30k import read_side
from peers import contest, ours
from peers.settings import Continue, Task, Translate, forced
from peers.worker import Worker
from transformer.bundle import Bundle, load_bundle
from transformer.cli.compose import config_folder
from transformer.cli.console import one_line_errors
from transformer.inference.precision import Precision, model_bytes, set_precision
from transformer.inference.shortlist import SHORTLIST
from transformer.metrics.text import bleu
from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

OURS, HUGGING_FACE, CTRANSLATE = "ours float32", "Hugging Face", "CTranslate2"
PACKAGES = {HUGGING_FACE: "transformers", CTRANSLATE: "ctranslate2"}
LOGITS_WITHIN, LOG_PROBABILITIES_WITHIN = 1e-4, 1e-3
SAMPLE, CHECKED_TOKENS = 64, 100  # sentences, and tokens at most, on which all are compared
LM_VOCABULARY, LM_PROMPT, LM_TOKENS, LM_BATCHES = 4000, 32, 200, (1, 16)


class Part(StrEnum):
    """What is measured."""

    THROUGHPUT = "throughput"
    EQUAL_LENGTH = "equal-length"
    LATENCY = "latency"
    LANGUAGE_MODEL = "language-model"


class Contest(NamedTuple):
    """What is decoded, and by whom."""

    bundle: Bundle
    sources: list[list[int]]
    references: list[str]
    contestants: Mapping[str, Worker]
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
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of an output at most.", show_default="20 and 2 for each source token")
    ] = None,
    equal_length: Annotated[int, typer.Option(min=1, help="Tokens of every output in the part `equal-length`.")] = 20,
    latency_lines: Annotated[int, typer.Option(min=1, help="Sentences one by one in the part `latency`.")] = 100,
    part: Annotated[list[Part] | None, typer.Option(help="May be repeated.", show_default="all")] = None,
    peers: Annotated[bool, typer.Option(help="Hugging Face and CTranslate2 too, where installed.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Search translations of a trained model: sentences/s, latency, tokens/s of a language model; beside the peers.

    All have the same weights, are asked for the same, and are checked to compute the same before anything is timed.
    """
    with one_line_errors(), TemporaryDirectory() as exports, ExitStack() as processes:
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
        if max(max_tokens or 1, equal_length) > longest:
            raise ValueError(f"outputs must be of {longest} tokens at most, as many as the model can.")
        sources, references = read(loaded, folder, lines)
        builders = our_ways(console, bundle, loaded.model)
        builders |= their_copies(console, bundle, loaded, sources, installed, Path(exports), threads, max_tokens)
        contestants = {name: processes.enter_context(Worker(build, threads)) for name, build in builders.items()}
        setting = Contest(loaded, sources, references, contestants, repeats)
        check_greedy(console, setting, max_tokens)
        parts = list(Part) if part is None else part
        figures: dict[str, Any] = {}
        title = f"{len(sources)} sentences, beam {beam}, batches of {batch}"
        if Part.THROUGHPUT in parts:
            task = Task(beam, batch, max_tokens)
            figures["throughput"] = throughput(console, setting, task, title, scored=True)
        if Part.EQUAL_LENGTH in parts:
            task = Task(beam, batch, equal_length, equal_length)
            equal_title = f"{title}, every output of {equal_length} tokens"
            figures["equal_length"] = throughput(console, setting, task, equal_title, scored=False)
        if Part.LATENCY in parts:
            figures["latency"] = latency(console, setting, Task(beam, 1, max_tokens), latency_lines)
        if Part.LANGUAGE_MODEL in parts:
            for rows in LM_BATCHES:
                figures[f"language_model_batch_{rows}"] = language_model(console, installed, rows, repeats, threads)
    if json_file is not None:
        versions = {PACKAGES[name]: importlib.metadata.version(PACKAGES[name]) for name in sorted(installed)}
        settings = {"lines": len(sources), "beam": beam, "batch": batch, "threads": threads, "repeats": repeats}
        everything = {"settings": settings, "versions": versions | {"torch": torch.__version__}, "figures": figures}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def read(bundle: Bundle, folder: Path, lines: int) -> tuple[list[list[int]], list[str]]:
    """Source ids with end tokens, sorted by length, and the references in the same order."""
    tokenizer, references = bundle.source_tokenizer, read_side(folder, "de", lines)
    ids = [[*line, tokenizer.eos_id] for line in tokenizer.encode_batch(read_side(folder, "en", lines))]
    order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
    return [ids[number] for number in order], [references[number] for number in order]


def our_ways(console: Console, folder: Path, model: EncoderDecoder) -> dict[str, Callable[[], Translate]]:
    """Our search in each precision that this machine has, and in the bundle's shortlist if it has one."""
    ways: dict[str, Callable[[], Translate]] = {}
    for precision in get_args(Precision):
        try:
            size = model_bytes(set_precision(model, precision))
        except ValueError as error:
            console.print(f"ours in {precision} is left out: {error}")
            continue
        console.print(f"ours {precision}: {size / 1e6:.1f} MB of weights")
        ways[f"ours {precision}"] = partial(ours.load_translating, folder, precision)
        if (folder / SHORTLIST).exists():
            ways[f"ours {precision}, shortlist"] = partial(ours.load_translating, folder, precision, shortlist=True)
    return ways


def their_copies(
    console: Console,
    folder: Path,
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    installed: set[str],
    exports: Path,
    threads: int,
    max_tokens: int | None,
) -> dict[str, Callable[[], Translate]]:
    """The peers with our weights, compared with ours in float32 on a sample of the sources.

    Raises:
        ValueError: for a model that they have no equal of, or if they compute anything else than ours.
    """
    assert isinstance(bundle.model, EncoderDecoder)
    model, tokenizer = bundle.model, bundle.target_tokenizer
    special = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
    sample = sources[:: max(1, len(sources) // SAMPLE)]
    outputs = ours.load_translating(folder)(sample, Task(beam=1, batch=32, max_tokens=max_tokens))
    reading = forced(model, sample, outputs, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id)
    ways: dict[str, Callable[[], Translate]] = {}
    checked = []
    if HUGGING_FACE in installed:
        from peers import hugging_face

        theirs = hugging_face.to_m2m100(model, pad_id=tokenizer.pad_id, **special)
        ways[HUGGING_FACE] = partial(hugging_face.load_translating, folder)
        checked.append((HUGGING_FACE, "logits", hugging_face.deviation(theirs, reading), LOGITS_WITHIN))
    if CTRANSLATE in installed:
        from peers import ctranslate

        unknown = tokenizer.pad_id if tokenizer.unk_id is None else tokenizer.unk_id
        ctranslate.save_for_ctranslate(exports, model, unk_id=unknown, **special)
        for kind in ("float32", "int8"):
            ways[f"{CTRANSLATE} {kind}"] = partial(ctranslate.load_translating, exports, kind, threads)
        difference = ctranslate.deviation(exports, reading, tokenizer.eos_id)
        checked.append((f"{CTRANSLATE} float32", "log probabilities", difference, LOG_PROBABILITIES_WITHIN))
    for name, what, difference, within in checked:
        if difference >= within:
            raise ValueError(
                f"{name} does not compute the same: its {what} differ by up to {difference:.1e} (below {within:.0e} "
                "is rounding)."
            )
        console.print(f"{name}: {what} within {difference:.1e} of ours.")
    return ways


def check_greedy(console: Console, setting: Contest, max_tokens: int | None) -> None:
    """Refuse a contest with a peer whose greedy outputs in float32 differ from ours."""
    # One limit for all, as ours could otherwise cut an output that goes on and on where the peers do not.
    most = min(CHECKED_TOKENS, setting.bundle.model.config.max_length) if max_tokens is None else max_tokens
    sample, greedy = setting.sources[:: max(1, len(setting.sources) // SAMPLE)], Task(1, 32, most)
    same = [name for name in (HUGGING_FACE, f"{CTRANSLATE} float32") if name in setting.contestants]
    if same:
        outputs = setting.contestants[OURS](sample, greedy).outputs
    for name in same:
        theirs = setting.contestants[name](sample, greedy).outputs
        if different := sum(one != other for one, other in zip(outputs, theirs, strict=True)):
            raise ValueError(f"{name} does not search the same: {different} of {len(outputs)} greedy outputs differ.")
        console.print(f"{name}: {len(outputs)} greedy outputs equal.")


def throughput(console: Console, setting: Contest, task: Task, title: str, *, scored: bool) -> list[dict[str, Any]]:
    """All sentences in batches."""
    runs = {name: partial(worker, setting.sources, task) for name, worker in setting.contestants.items()}
    timed = contest.in_turn(runs, setting.repeats)
    decoded = setting.bundle.target_tokenizer.decode_batch
    scores = None
    if scored:
        scores = {name: bleu(decoded(one.outputs), setting.references).value for name, one in timed.items()}
    figures = contest.rows(timed, ours=OURS, bleu=scores)
    contest.show(console, title, figures, peers=setting.peers)
    return figures


def latency(console: Console, setting: Contest, task: Task, lines: int) -> list[dict[str, Any]]:
    """Sentences of all lengths one by one, each in a call of its own."""
    sources = setting.sources[:: max(1, len(setting.sources) // lines)][:lines]
    runs = {name: partial(worker, sources, task) for name, worker in setting.contestants.items()}
    figures = contest.rows(contest.in_turn(runs, setting.repeats), ours=OURS)
    contest.show(console, f"{len(sources)} sentences one by one, beam {task.beam}", figures, peers=setting.peers)
    return figures


def language_model(
    console: Console, installed: set[str], rows: int, repeats: int, threads: int
) -> list[dict[str, Any]]:
    """Greedy continuations by a model of random weights, as `configs/model/lm_tiny.yaml` describes it."""
    prompts = torch.randint(LM_VOCABULARY, (rows, LM_PROMPT), generator=torch.Generator().manual_seed(0)).tolist()
    builders: dict[str, Callable[[], Continue]] = {OURS: our_language_model}
    if HUGGING_FACE in installed:
        builders[HUGGING_FACE] = their_language_model
    with ExitStack() as processes:
        workers = {name: processes.enter_context(Worker(build, threads)) for name, build in builders.items()}
        timed = contest.in_turn(
            {name: partial(worker, prompts, LM_TOKENS) for name, worker in workers.items()}, repeats
        )
    if different := [name for name, one in timed.items() if one.outputs != timed[OURS].outputs]:
        raise ValueError(f"{' and '.join(different)} continued a prompt in another way than ours.")
    figures = contest.rows(timed, ours=OURS)
    title = f"language model, batch {rows}: {LM_TOKENS} tokens after {LM_PROMPT}, greedy"
    contest.show(console, title, figures, peers=[name for name in builders if name != OURS])
    return figures


def our_language_model() -> Continue:
    """Our greedy search with a small model, the same in every process."""
    return ours.continuing(_random_language_model(), eos_id=0)


def their_language_model() -> Continue:
    """Hugging Face's with the same weights."""
    from peers import hugging_face

    return hugging_face.continuing(hugging_face.to_gpt2(_random_language_model()), eos_id=0)


def _random_language_model() -> DecoderOnly:
    torch.manual_seed(0)
    plain = OmegaConf.to_container(OmegaConf.load(config_folder() / "model" / "lm_tiny.yaml"))
    assert isinstance(plain, dict)
    return DecoderOnly(DecoderOnlyConfig.from_plain(plain), LM_VOCABULARY).eval()
