"""Translations and continuations as a visitor sees them, in a browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from transformer.bundle import Bundle, save_bundle
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.attention_maps import translation_attention
from transformer.inference.generator import Generator
from transformer.inference.output import Output
from transformer.inference.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def translator(tiny_bundle: Callable[..., Bundle]) -> Translator:
    """A tiny model with random weights: two layers of two heads on each side."""
    return Translator(tiny_bundle("encoder_decoder", num_encoder_layers=2, num_decoder_layers=2))


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any], browser: object, translator: Translator, tmp_path_factory: Any) -> Any:
    """The page with it."""
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    save_bundle(folder, translator.bundle, "")
    return serve(folder, "--device", "cpu")


def choose(page: "Page", group: str, label: str) -> None:
    """Click a choice of a group of them."""
    page.locator(f"#{group} label").filter(has_text=re.compile(rf"^\s*{re.escape(label)}")).click()


def fill(page: "Page", field: str, number: object) -> None:
    """Write a number into a field of the search, which may have to appear first."""
    page.locator(f"#{field} input").fill(str(number))


def rows(page: "Page", number: int) -> list[list[str]]:
    """The outputs on the page, when there are so many: number, text, score, log probability, tokens."""
    page.locator(f"table.outputs tbody tr:nth-child({number})").wait_for()
    return [row.locator("th, td").all_inner_texts() for row in page.locator("table.outputs tbody tr").all()]


def as_rows(outputs: list[Output]) -> list[list[str]]:
    def figure(value: float) -> str:
        return f"{value:.4f}".replace("-", "−")

    return [
        [
            str(place),
            re.sub(r"\s+", " ", output.text).strip() + ("" if output.finished else " (cut)"),
            figure(output.score),
            figure(output.log_probability),
            str(len(output.tokens)),
        ]
        for place, output in enumerate(outputs, start=1)
    ]


def squeezed(found: list[list[str]]) -> list[list[str]]:
    return [[re.sub(r"\s+", " ", cell).strip() for cell in row] for row in found]


def told(page: "Page") -> list[str]:
    """What the cells of the map tell."""
    page.locator(".attention .cells").wait_for()
    return page.locator(".attention rect title").all_text_contents()


def test_it_translates_with_the_search_that_is_set(
    served: Any, open_page: Callable[..., "Page"], translator: Translator
) -> None:
    page = open_page(served.url)
    page.fill("#text textarea", "one two")
    fill(page, "max-new-tokens", 6)
    page.click("#go")
    [greedy] = translator.search(["one two"], GreedyConfig(name="greedy", max_new_tokens=6))
    assert squeezed(rows(page, 1)) == as_rows(greedy)
    assert not page.locator("#chosen").is_visible()

    choose(page, "kind", "Beam")
    fill(page, "num-best", 3)
    fill(page, "size", 4)
    fill(page, "length-penalty", 0.5)
    page.click("#go")
    beam = BeamConfig(name="beam", size=4, length_penalty=0.5, max_new_tokens=6)
    [best] = translator.search(["one two"], beam, num_best=3)
    assert squeezed(rows(page, 3)) == as_rows(best)

    choose(page, "kind", "Sampling")
    fill(page, "num-best", 2)
    fill(page, "seed", 7)
    fill(page, "top-k", 5)
    page.click("#go")
    page.wait_for_function("document.querySelectorAll('table.outputs tbody tr').length == 2")
    sample = SampleConfig(name="sample", seed=7, top_k=5, max_new_tokens=6)
    [drawn] = translator.search(["one two"], sample, num_best=2)
    assert squeezed(rows(page, 2)) == as_rows(drawn)
    assert served.reached.read_text() == ""
    assert served.errors.read_text() == ""


def test_the_map_is_of_the_chosen_output_layer_and_head(
    served: Any, open_page: Callable[..., "Page"], translator: Translator, tmp_path: Path
) -> None:
    page = open_page(served.url)
    page.fill("#text textarea", "one two")
    choose(page, "kind", "Beam")
    fill(page, "num-best", 2)
    fill(page, "max-new-tokens", 6)
    page.click("#go")
    beam = BeamConfig(name="beam", max_new_tokens=6)
    [best] = translator.search(["one two"], beam, num_best=2)
    maps = [translation_attention(translator, "one two", output.tokens).maps for output in best]

    def expected(output: int, kind: int, layer: int | None, head: int | None) -> list[str]:
        chosen = maps[output][kind]
        weights_HQK = chosen.weights_LHQK.mean(0) if layer is None else chosen.weights_LHQK[layer - 1]
        weights_QK = weights_HQK.mean(0) if head is None else weights_HQK[head - 1]
        return [
            f"{query.text} looks at {key.text}: {weights_QK[row, column]:.4f}"
            for row, query in enumerate(chosen.query_tokens)
            for column, key in enumerate(chosen.key_tokens)
            if chosen.visible_QK[row, column]
        ]

    def wait_for(cells: list[str]) -> None:
        for _ in range(100):
            if told(page) == cells:
                return
            page.wait_for_timeout(100)
        assert told(page) == cells

    wait_for(expected(0, 2, None, None))
    choose(page, "chosen", "2")
    wait_for(expected(1, 2, None, None))
    for field, number in (("layer", "2"), ("head", "1")):
        page.locator(f"#{field} input").click()
        page.get_by_role("option", name=number, exact=True).click()
        page.get_by_role("option").first.wait_for(state="detached")  # the list fades away
    wait_for(expected(1, 2, 2, 1))
    page.locator(".attention rect").nth(3).hover()
    page.wait_for_function(
        "text => document.querySelector('.readout').textContent === text", arg=expected(1, 2, 2, 1)[3]
    )
    choose(page, "attention-kind", "Output looks back")
    wait_for(expected(1, 1, None, None))
    choose(page, "attention-kind", "Source looks")
    wait_for(expected(1, 0, None, None))


def test_what_cannot_be_done_is_explained_in_place(served: Any, open_page: Callable[..., "Page"]) -> None:
    page = open_page(served.url)
    problem = page.locator("#text-problem .notice")

    def says(sentence: str) -> None:
        page.click("#go")
        page.locator("#text-problem", has_text=sentence).wait_for()
        assert problem.inner_text() == sentence

    says("There is no text to translate yet.")
    page.fill("#text textarea", "a" * 2001)
    says("The text must have 2000 characters at most, but has 2001.")
    page.fill("#text textarea", "one two")
    fill(page, "max-new-tokens", 300)
    says("“Tokens at most” must be 256 at most on this page, but is 300.")
    fill(page, "max-new-tokens", 6)
    page.click("#go")
    rows(page, 1)
    assert problem.count() == 0
    page.fill("#text textarea", "a" * 30)  # longer than the model
    says("The text has 30 tokens and is cut to the model's 23.")
    page.locator("#map", has_text="There is no attention to show").wait_for()
    assert page.locator("[data-testid=toast-body]").count() == 0


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_it_fits_the_screen(
    served: Any, open_page: Callable[..., "Page"], tmp_path: Path, width: int, height: int
) -> None:
    page = open_page(served.url, width=width, height=height)
    page.fill("#text textarea", "one two three four")
    choose(page, "kind", "Beam")
    fill(page, "num-best", 3)
    page.click("#go")
    rows(page, 3)
    page.locator(".attention .cells").wait_for()
    tops = {name: page.locator(name).bounding_box()["y"] for name in ("#go", "#outputs", "#size")}
    # On a phone, what was found comes before the settings; on a desk, beside them.
    assert (tops["#go"] < tops["#outputs"] < tops["#size"]) == (width == 390)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert len(page.screenshot(path=tmp_path / f"{width}.png", full_page=True)) > 20_000


def test_a_language_model_continues_a_text(
    serve: Callable[..., Any], browser: object, open_page: Callable[..., "Page"], tiny_bundle: Callable[..., Bundle],
    tmp_path: Path,
) -> None:  # fmt: skip
    bundle = tiny_bundle("decoder_only")
    save_bundle(tmp_path / "bundle", bundle, "")
    served = serve(tmp_path / "bundle", "--device", "cpu")
    page = open_page(served.url)
    page.locator("#kind label").first.wait_for()
    assert page.locator("#kind label").all_inner_texts() == ["Greedy", "Beam", "Sampling"]
    page.fill("#text textarea", "one")
    choose(page, "kind", "Beam")
    fill(page, "num-best", 2)
    fill(page, "max-new-tokens", 5)
    assert page.locator("#coverage-penalty").count() == 0
    page.click("#go")
    beam = BeamConfig(name="beam", max_new_tokens=5)
    [outputs] = Generator(bundle).search(["one"], beam, num_best=2)
    assert squeezed(rows(page, 2)) == as_rows(outputs)
    length = len("one") + len(outputs[0].tokens)
    assert len(told(page)) == length * (length + 1) // 2  # causal: what is ahead is blank
    assert served.reached.read_text() == ""
    assert served.errors.read_text() == ""
