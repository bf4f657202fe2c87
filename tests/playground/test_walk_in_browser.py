"""The five steps as a visitor sees them, in a browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from transformer.playground.matrices import format_matrix
from transformer.playground.presets import PRESETS

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = ["Dot products", "Scaled", "Masked", "Weights", "Output"]
HIDDEN = "−∞"


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any], browser: object) -> str:
    """The page without a bundle."""
    address: str = serve().url
    return address


def choose(page: "Page", group: str, label: str) -> None:
    """Click a choice of a group of them."""
    page.locator(f"#{group} label").filter(has_text=re.compile(rf"^\s*{re.escape(label)}")).click()


def at_step(page: "Page", step: int) -> None:
    """Wait until a step is shown."""
    page.locator("section.walk h3", has_text=f"Step {step} of 5 {NAMES[step - 1]}").wait_for()


def chain(page: "Page") -> list[list[str]]:
    """The table of the query that is followed: key, dot product, scaled, masked, weight, value."""
    rows = page.locator("table.chain tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def results(page: "Page") -> list[list[str]]:
    """The table of a step's results for all queries."""
    return [row.locator("td").all_inner_texts() for row in page.locator("table.all tbody tr").all()]


def wait_for_results(page: "Page", expected: list[list[str]]) -> None:
    """Wait until the results are these; after a while, compare them for the message."""
    for _ in range(100):
        if results(page) == expected:
            return
        page.wait_for_timeout(100)
    assert results(page) == expected


def load(page: "Page", name: str) -> None:
    """Choose an example and wait for it."""
    choose(page, "preset", name)
    page.locator("#about", has_text=PRESETS[name].about).wait_for()
    for field, matrix in zip("qkv", PRESETS[name].matrices, strict=True):
        expect(page.locator(f"#matrix-{field} textarea")).to_have_value(format_matrix(matrix))
    expect(page.locator("table.chain tbody tr")).to_have_count(len(PRESETS[name].matrices.key))


EXAMPLES = {
    "Two tokens": [
        [["1.0000", "0.0000"], ["0.0000", "1.0000"]],
        [["0.7071", "0.0000"], ["0.0000", "0.7071"]],
        [["0.7071", "0.0000"], ["0.0000", "0.7071"]],
        [["0.6698", "0.3302"], ["0.3302", "0.6698"]],
        [["6.6976", "3.3024"], ["3.3024", "6.6976"]],
    ],
    "One query": [
        [["1.0000", "0.0000"]],
        [["0.7071", "0.0000"]],
        [["0.7071", "0.0000"]],
        [["0.6698", "0.3302"]],
        [["13.3024"]],
    ],
    "Zero scores": [
        [["0.0000"] * 3] * 3,
        [["0.0000"] * 3] * 3,
        [["0.0000", HIDDEN, HIDDEN], ["0.0000", "0.0000", HIDDEN], ["0.0000"] * 3],
        [["1.0000", "0.0000", "0.0000"], ["0.5000", "0.5000", "0.0000"], ["0.3333"] * 3],
        [["3.0000", "0.0000"], ["4.5000", "1.5000"], ["6.0000", "4.0000"]],
    ],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_A1_A2_A4_step_by_step(url: str, open_page: Callable[..., "Page"], name: str) -> None:
    page = open_page(url)
    load(page, name)
    for step, expected in enumerate(EXAMPLES[name], start=1):
        at_step(page, step)
        wait_for_results(page, expected)
        page.click("#next")


def test_A3_six_tokens_step_by_step(url: str, open_page: Callable[..., "Page"]) -> None:
    page = open_page(url)
    load(page, "Six tokens")
    at_step(page, 1)
    assert [row[:3] for row in chain(page)] == [
        ["key 1", "0.9544", "…"],
        ["key 2", "1.4950", "…"],
        ["key 3", "1.4754", "…"],
        ["key 4", "0.8434", "…"],
        ["key 5", "0.7070", "…"],
        ["key 6", "1.0865", "…"],
    ]
    page.click("#next")
    at_step(page, 2)
    assert [row[2] for row in chain(page)] == ["0.5510", "0.8631", "0.8518", "0.4869", "0.4082", "0.6273"]
    page.click("#next")
    at_step(page, 3)
    assert [row[3] for row in chain(page)] == ["0.5510", "0.8631", HIDDEN, HIDDEN, HIDDEN, HIDDEN]
    page.click("#next")
    at_step(page, 4)
    assert [row[4] for row in chain(page)] == ["0.4226", "0.5774", "0.0000", "0.0000", "0.0000", "0.0000"]
    assert results(page)[5] == ["0.1511", "0.1965", "0.1936", "0.1533", "0.1243", "0.1811"]
    page.click("#next")
    at_step(page, 5)
    assert page.locator("table.chain tfoot td").all_inner_texts()[-2:] == ["1.0000", "(0.4993, 0.5657, 0.7572)"]
    assert results(page) == [
        ["0.4300", "0.1500", "0.8900"],
        ["0.4993", "0.5657", "0.7572"],
        ["0.5249", "0.6685", "0.7148"],
        ["0.4541", "0.6381", "0.6314"],
        ["0.5206", "0.5514", "0.5236"],
        ["0.4219", "0.6231", "0.5507"],
    ]
    choose(page, "query", "q6")
    page.locator("p.query", has_text="Query 6").wait_for()
    assert page.locator("table.chain tfoot td").all_inner_texts()[-1] == "(0.4219, 0.6231, 0.5507)"
    page.click("#back")
    at_step(page, 4)
    assert chain(page)[5][4] == "0.1811"


def test_numbers_and_switches_change_the_steps(url: str, open_page: Callable[..., "Page"]) -> None:
    page = open_page(url)
    choose(page, "step", "4 Weights")
    wait_for_results(page, [["0.6698", "0.3302"], ["0.3302", "0.6698"]])
    page.locator("#matrix-q textarea").click()  # delete the first 1 and type a 2 in its place
    page.keyboard.press("Control+Home")
    page.keyboard.press("Delete")
    page.keyboard.type("2")  # 1 / (1 + exp(-2 / √2)) = 0.8044
    wait_for_results(page, [["0.8044", "0.1956"], ["0.3302", "0.6698"]])
    page.keyboard.press("Backspace")  # an input that is there by deleting alone
    page.locator("#problem", has_text="the rows of Q must be equally long").wait_for()
    page.keyboard.insert_text("2")  # as pasted
    choose(page, "step", "5 Output")
    wait_for_results(page, [["8.0443", "1.9557"], ["3.3024", "6.6976"]])
    page.uncheck("#scaled input")  # 1 / (1 + exp(-2)) = 0.8808, 1 / (1 + exp(-1)) = 0.7311
    wait_for_results(page, [["8.8080", "1.1920"], ["2.6894", "7.3106"]])
    page.check("#causal input")
    wait_for_results(page, [["10.0000", "0.0000"], ["2.6894", "7.3106"]])
    # One value less wide, a query less: the last query sees both keys.
    page.fill("#matrix-v textarea", "10\n20")
    page.fill("#matrix-q textarea", "2 0")
    wait_for_results(page, [["11.1920"]])
    assert page.locator("#query label").all_inner_texts() == ["q1"]


def test_new_queries_over_more_keys_and_over_none(url: str, open_page: Callable[..., "Page"]) -> None:
    page = open_page(url)
    choose(page, "step", "4 Weights")
    load(page, "Cached keys")
    wait_for_results(page, [["0.4011", "0.1978", "0.4011", "0.0000"], ["0.1091", "0.2212", "0.2212", "0.4486"]])
    assert page.locator(".walk .notice").count() == 0
    load(page, "Nothing to see")
    wait_for_results(page, [["0.0000", "0.0000"], ["1.0000", "0.0000"], ["0.5000", "0.5000"]])
    said = page.locator(".walk .notice").inner_text()
    assert said == "This query may look at no key, so all its weights are 0 and so is its output."


@pytest.mark.parametrize(
    ("matrix", "text", "sentence"),
    [
        ("q", "1 x\n0 1", "Q, row 1, cell 2 must be a number, such as 0.5, but is “x”."),
        (
            "q",
            "1 ${7*7}<img/src=x>{{y}}",
            "Q, row 1, cell 2 must be a number, such as 0.5, but is “${7*7}<img/src=x>{{y}}”.",
        ),
        ("k", "1 0\n0 1 2", "the rows of K must be equally long, but row 1 has 2 cells and row 2 has 3."),
        ("v", "1 2 3", "K and V must have equally many rows, one key for each value, but K has 2 and V has 1."),
    ],
)
def test_wrong_input_is_explained_in_place(
    url: str, open_page: Callable[..., "Page"], matrix: str, text: str, sentence: str
) -> None:
    page = open_page(url)
    page.locator(f"#matrix-{matrix} textarea").fill(text)
    problem = page.locator("#problem [role=alert]")
    problem.wait_for()
    assert problem.inner_text() == sentence
    assert page.locator("#steps").inner_text().strip() == "The steps appear again as soon as the input can be used."
    page.wait_for_timeout(500)
    assert problem.is_visible()
    assert page.locator("[data-testid=toast-body]").count() == 0
    page.fill(f"#matrix-{matrix} textarea", "1 1\n1 1")
    page.locator("table.all").wait_for()
    assert problem.count() == 0


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_screen(
    url: str, open_page: Callable[..., "Page"], tmp_path: Path, width: int, height: int, dark: bool
) -> None:
    """What is wider than a phone scrolls by itself, and texts can be told from what is behind them."""
    page = open_page(url, width=width, height=height, dark=dark)
    load(page, "Six tokens")
    for step in range(1, 6):
        choose(page, "step", str(step))
        at_step(page, step)
        assert page.evaluate("document.documentElement.scrollWidth") == width
    inner = page.locator(".wide").first
    scrolls = inner.evaluate("box => box.scrollWidth > box.clientWidth")
    assert scrolls == (width == 390)
    picture = page.screenshot(path=tmp_path / f"{width}.png", full_page=True)
    assert len(picture) > 20_000
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 128) == dark
    colour = page.locator("section.walk h3").evaluate("heading => getComputedStyle(heading).color")
    assert (sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128) == dark


def test_the_browser_refuses_to_load_from_elsewhere(url: str, open_page: Callable[..., "Page"]) -> None:
    """Without the headers of the page, the request would be made, and be found at the end of this test."""
    page = open_page(url)
    assert page.evaluate("fetch('http://192.0.2.1/').then(() => 'loaded', () => 'refused')") == "refused"
