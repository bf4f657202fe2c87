"""Inputs of many lines, and of a long one."""

import json
import subprocess
import sys

import pytest

from transformer.bundle import save_bundle
from transformer.cli.translate import app

# Peak memory in KiB; only macOS counts bytes.
PROGRAM = """
import resource, sys
from transformer.cli.translate import app

app(standalone_mode=False)
sys.stdout.flush()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak // 1024 if sys.platform == "darwin" else peak, file=sys.stderr)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_lines(tiny_bundle, tmp_path):
    save_bundle(tmp_path, tiny_bundle("encoder_decoder"), "card")
    options = ["--device", "cpu", "--threads", "1", "--max-new-tokens", "8", "--alignments", str(tmp_path / "links")]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *options, "--output", "json", "--attention"]
    peaks = []
    for count in (1_000, 10_000):
        lines = ["" if number % 7 == 0 else f"zeile {number % 1000:03}" for number in range(count)]
        content = "".join(f"{line}\n" for line in lines).encode()
        done = subprocess.run(command, input=content, capture_output=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [answer["line"] for answer in answers] == list(range(1, count + 1))
        assert [answer["source"] for answer in answers] == lines
        assert (tmp_path / "links").read_bytes().count(b"\n") == count
        peaks.append(int(done.stderr))
    assert peaks[1] - peaks[0] < 20 * 1024, peaks


def test_a_line_of_5000_tokens_is_not_cut(tiny_bundle, run_tool, tmp_path):
    """All of it has a part in the answer, so the answer is another without its end."""
    save_bundle(tmp_path, tiny_bundle("encoder_decoder", max_length=6000), "card")
    long = "ein hund " * 555 + "zwei"
    assert len(long) == 4999  # and the end token
    content = f"{long}\n{long[:4990]}\n{long}\n".encode()
    options = ["--beam-size", 1, "--max-new-tokens", 5, "--output", "json"]
    result = run_tool(app, [tmp_path, *options], input=content)
    assert (result.exit_code, result.stderr) == (0, "")
    whole, cut, again = (json.loads(line)["token_log_probabilities"] for line in result.stdout_bytes.splitlines())
    assert whole == pytest.approx(again, abs=1e-6)
    assert abs(whole[0] - cut[0]) > 1e-4
