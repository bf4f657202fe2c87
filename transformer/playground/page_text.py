"""Numbers and texts as the page shows them."""

import html
import math
from collections.abc import Iterable


def number(value: float) -> str:
    """Four decimals, with a real minus sign and no negative zero."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def plain(value: float) -> str:
    """A number as it was typed in, in brackets where it is negative."""
    text = f"{value:g}"
    return f"(−{text[1:]})" if text.startswith("-") else text


def vector(values: Iterable[float]) -> str:
    """Numbers in brackets; a single one without."""
    texts = list(map(number, values))
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def escaped(text: str) -> str:
    """A text that may hold anything, for HTML and for the templates that Gradio makes of it."""
    return html.escape(text).replace("{", "&#123;").replace("$", "&#36;").replace("`", "&#96;")


def notice(sentence: str, kind: str) -> str:
    """A sentence in a box of its own; ``kind`` is "error", "note" or "hint". Blank for a blank sentence."""
    role = "alert" if kind == "error" else "status"
    return f'<p class="notice {kind}" role="{role}">{escaped(sentence)}</p>' if sentence else ""
