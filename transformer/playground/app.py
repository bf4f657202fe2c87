"""The whole page: its title and its tabs."""

import gradio as gr

from transformer.playground.text_page import text_tab
from transformer.playground.trial import Trial
from transformer.playground.walk_page import walk_tab

TITLE = "Transformer playground"


def build_page(trial: Trial | None) -> gr.Blocks:
    """The page, with a tab for a bundle if there is one."""
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.HTML(f"<h1>{TITLE}</h1>")
        with gr.Tabs():
            if trial is not None:
                with gr.Tab("Translate" if trial.translates else "Continue text", id="text"):
                    text_tab(trial)
            with gr.Tab("Attention in five steps", id="walk"):
                walk_tab()
    return page
