"""``transformer-tokenizer`` in this process."""

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from transformer.cli.tokenizer import app
from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig, SpecialTokens, WordPieceConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_training import TrainedConfig

LINES = [f"the cat number {n} sat on the mat, über all the {n + 1} others" for n in range(90, 160)]


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    logger = logging.getLogger("transformer")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def run(*arguments: object, input: bytes = b"") -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], input=input)


@pytest.mark.parametrize(
    ("options", "config", "tags"),
    [
        (["--vocab-size", 290], BpeConfig(vocab_size=290), []),
        (
            ["--vocab-size", 300, "--units", "characters", "--no-split-digits", "--normalization", "nfc"],
            BpeConfig(vocab_size=300, units="characters", split_digits=False, normalization="nfc"),
            [],
        ),
        (["--kind", "wordpiece", "--vocab-size", 530], WordPieceConfig(vocab_size=530), []),
        (
            ["--symbol", "<br>", "--symbol", "the cat", "--tag", "<2de>", "--tag", "<2en>", "--vocab-size", 280],
            BpeConfig(vocab_size=280, user_symbols=("<br>", "the cat")),
            ["<2de>", "<2en>"],
        ),
        (["--vocab-size", 270, "--max-training-texts", 10], BpeConfig(vocab_size=270, max_training_texts=10), []),
        (["--kind", "char", "--byte-fallback"], CharConfig(byte_fallback=True), []),
        (["--kind", "byte", "--pad-vocab-to-multiple-of", 64], ByteConfig(pad_vocab_to_multiple_of=64), []),
    ],
)
def test_training_is_that_of_the_library(
    options: list[object], config: TrainedConfig, tags: list[str], corpus: Path, tmp_path: Path
) -> None:
    result = run("train", corpus, "--output", tmp_path / "t.json", *options)
    assert result.exit_code == 0, result.stderr
    expected = Tokenizer.train(config, LINES, tags)
    assert Tokenizer.load(tmp_path / "t.json").fingerprint() == expected.fingerprint()
    num_tokens, num_words = sum(map(len, expected.encode_batch(LINES))), sum(len(line.split()) for line in LINES)
    lines = result.stdout.splitlines()
    units = f" over {config.units}" if isinstance(config, BpeConfig) else ""
    assert lines[0] == f"{tmp_path / 't.json'}: {config.name}{units}, {expected.vocab_size} tokens"
    assert lines[1] == f"{num_tokens / num_words:.2f} tokens per word (all 70 lines measured)"
    assert len(lines) == (2 if config.name in ("char", "byte") else 3)


def test_the_longest_pieces_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("internationalisation of überall\n" * 9, encoding="utf-8")
    result = run("train", tmp_path / "a.txt", "--vocab-size", 286, "--output", tmp_path / "t.json", "--symbol", "<br/>")
    assert result.stdout.splitlines()[2].startswith("longest pieces: 'internationalisation', ")
    assert "<br/>" not in result.stdout


def test_several_files_plain_and_packed_are_one_corpus(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("ähnlich ähnlich\n".encode()))
    result = run("train", corpus, tmp_path / "b.txt.gz", "--output", tmp_path / "t.json", "--vocab-size", 280)
    assert "(all 71 lines measured)" in result.stdout
    expected = Tokenizer.train(BpeConfig(vocab_size=280), [*LINES, "ähnlich ähnlich"])
    assert Tokenizer.load(tmp_path / "t.json").fingerprint() == expected.fingerprint()


def test_messages_go_to_standard_error(corpus: Path, tmp_path: Path) -> None:
    result = run("train", corpus, "--output", tmp_path / "t.json", "--max-training-texts", 10)
    first, second = result.stderr.splitlines()
    assert first == "info: The vocabulary is learnt from 10 of 70 texts, evenly spread."
    assert second.startswith("warning: `vocab_size` is 8000, but these texts give ")
    assert "vocabulary is learnt" not in result.stdout


def test_an_existing_file_is_overwritten_by_force_alone(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.json"
    output.write_text("mine", encoding="utf-8")
    result = run("train", corpus, "--output", output, "--kind", "byte")
    assert (result.exit_code, result.stderr) == (2, f"error: {output} exists already; --force overwrites it.\n")
    assert output.read_text(encoding="utf-8") == "mine"
    assert run("train", corpus, "--output", output, "--kind", "byte", "--force").exit_code == 0
    assert Tokenizer.load(output).vocab_size == 260


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "byte", "--vocab-size", 300], "--vocab-size has no effect with --kind byte; leave it out."),
        (["--kind", "char", "--no-split-digits"], "--split-digits has no effect with --kind char; leave it out."),
        (["--kind", "unigram", "--units", "bytes"], "--units has no effect with --kind unigram; leave it out."),
        (["--byte-fallback"], "--byte-fallback has no effect with --kind bpe; leave it out."),
        (["--vocab-size", 4], "`vocab_size` must be greater than 4, but is 4."),
        (["--symbol", "<s>"], "`user_symbols` must not name the special token '<s>'."),
        (["--tag", "<s>"], "The tag '<s>' must be a token of its own, but is a special token too."),
        (["--kind", "byte", "--symbol", "é"], "The symbol 'é' must be a token of its own, but that is how this"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(
    options: list[object], message: str, corpus: Path, tmp_path: Path
) -> None:
    result = run("train", corpus, "--output", tmp_path / "t.json", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "t.json").exists()


def test_files_that_cannot_be_read_or_written_are_one_line(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"good\nm\xfcde\n")
    for file, output, message in (
        (tmp_path / "none.txt", tmp_path / "t.json", "none.txt' does not exist."),
        (tmp_path / "latin.txt", tmp_path / "t.json", "line 2"),
        (corpus, tmp_path / "no" / "t.json", f"there is no folder {tmp_path / 'no'}."),
        (corpus, tmp_path, "exists already; --force overwrites it."),
    ):
        result = run("train", file, "--output", output)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    result = run("train", corpus, "--output", tmp_path, "--kind", "byte", "--force")
    assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path} cannot be written: Is a directory.\n")


def test_inspecting_shows_what_the_vocabulary_is_made_of(tmp_path: Path) -> None:
    config = ByteConfig(normalization="nfkc", user_symbols=("<br>", "|"))
    Tokenizer.train(config, [], ["<2de>"]).save(tmp_path / "t.json")
    result = run("inspect", tmp_path / "t.json", "--text", "ﬁ<br>", "--text", "a", "--text", "")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "model: BPE\n"
        "vocabulary: 262 tokens\n"
        "normalisation: NFKC\n"
        "special tokens: pad '<pad>' 0, begin '<s>' 1, end '</s>' 2, unknown '<unk>' 3\n"
        "tags: '<2de>' 261\n"
        "symbols: '|' 95, '<br>' 260\n"
        "\n'ﬁ<br>': 3 tokens\n"
        "  f:73 i:76 <br>:260\n"
        "  comes back in normal form: 'fi<br>'\n"
        "\n'a': 1 token\n"
        "  a:68\n"
        "  comes back exactly\n"
        "\n'': 0 tokens\n"
        "  no tokens\n"
        "  comes back exactly\n"
    )


def test_inspecting_reads_lines_of_standard_input(tmp_path: Path) -> None:
    Tokenizer.train(CharConfig(), ["abc"]).save(tmp_path / "t.json")
    result = run("inspect", tmp_path / "t.json", input="ab\nüc\n".encode())
    assert result.stdout.endswith(
        "\n'ab': 2 tokens\n  a:4 b:5\n  comes back exactly\n"
        "\n'üc': 2 tokens\n  <unk>:3 c:6\n  DIFFERS when it comes back: '<unk>c'\n"
    )
    # A text on the command line is all that is cut.
    assert "üc" not in run("inspect", tmp_path / "t.json", "--text", "a", input="üc\n".encode()).stdout


def test_inspecting_a_file_with_other_names(tmp_path: Path) -> None:
    import tokenizers

    vocabulary = {name: index for index, name in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[PAD]"))
    backend.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    backend.save(str(tmp_path / "t.json"))
    result = run("inspect", tmp_path / "t.json")
    assert result.exit_code == 2
    assert result.stderr.endswith("the special tokens there are '[PAD]', '[CLS]', '[SEP]', '[MASK]'.\n")
    names = ["--pad", "[PAD]", "--begin", "[CLS]", "--end", "[SEP]", "--unknown", ""]
    result = run("inspect", tmp_path / "t.json", *names)
    assert "special tokens: pad '[PAD]' 0, begin '[CLS]' 1, end '[SEP]' 2\ntags: '[MASK]' 3\n" in result.stdout
    result = run("inspect", tmp_path / "t.json", "--pad", "[CLS]", "--begin", "[CLS]")
    assert (result.exit_code, result.stderr.partition(" but")[0]) == (
        2,
        "error: Special tokens must differ from each other,",
    )
    assert SpecialTokens().names == ["<pad>", "<s>", "</s>", "<unk>"]


def test_what_is_no_tokenizer_is_one_line(tmp_path: Path) -> None:
    result = run("inspect", tmp_path / "none.json")
    expected = f"error: The tokenizer file '{tmp_path / 'none.json'}' cannot be read: No such file or directory.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", expected)


def test_help_gives_defaults() -> None:
    for command, texts in (("train", ["[default: bpe]", "[default: (8000)]", "Repeatable"]), ("inspect", ["<pad>"])):
        result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
        assert result.exit_code == 0
        for text in texts:
            assert text in result.stdout
