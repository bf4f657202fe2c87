"""How the page looks: fonts of the system alone, and colours for light and dark."""

import gradio as gr

CSS = """
.gradio-container { max-width: 1180px !important; margin: 0 auto !important; }
.gradio-container { --quiet: color-mix(in srgb, var(--body-text-color) 72%, transparent); --ink: #4f46e5; }
.dark .gradio-container, .gradio-container.dark { --ink: #a5b4fc; }
.gradio-container [data-testid="block-info"] + div, .gradio-container .info { color: var(--quiet); }
.prose table, .prose tr, .prose th, .prose td { border: 0; }
.prose sub, .prose sup { color: inherit; }
h1 { font-size: 1.5rem; font-weight: 650; margin: .25rem 0 0; }
.lead p { color: var(--quiet); margin: 0; max-width: 52rem; }

.notice { margin: 0; padding: .5rem .75rem; border-left: 3px solid var(--border-color-primary); border-radius: 4px;
  overflow-wrap: anywhere; }
.notice.hint { color: var(--quiet); }
.notice.note { border-color: #d9a514; background: color-mix(in srgb, #d9a514 12%, transparent); }
.notice.error { border-color: #dc4437; background: color-mix(in srgb, #dc4437 12%, transparent); }

#problem:not(:has(p)), #text-problem:not(:has(p)) { display: none; }
.matrix textarea { font-family: var(--font-mono); font-size: 1rem; line-height: 1.6; white-space: pre;
  overflow-x: auto; }
.pills .wrap { gap: .4rem; }
.pills label { padding: .3rem .65rem; }
/* Gradio shows the chosen one as not chosen while the pointer stays over it. */
.pills input:checked { background-color: var(--checkbox-background-color-selected) !important;
  border-color: var(--checkbox-border-color-selected) !important; }

.walk h3 { font-size: 1.25rem; font-weight: 650; margin: 0 0 .5rem; }
.walk h3 span { display: block; font-size: .8rem; font-weight: 500; color: var(--quiet); }
.walk h4 { font-size: 1rem; font-weight: 600; margin: 1.1rem 0 .4rem; }
.walk h4 span { font-family: Georgia, "Times New Roman", serif; font-weight: 400; }
.walk p { margin: 0 0 .6rem; }
.walk .formula { font-family: Georgia, "Times New Roman", serif; font-size: 1.15rem; padding: .5rem .75rem;
  border-radius: 6px; background: color-mix(in srgb, var(--ink) 10%, transparent); }
.walk .query { font-weight: 600; }
.walk .notice { margin-bottom: .6rem; }
/* Whatever is wider than the page scrolls by itself: its own width does not count for the page's. */
.wide { overflow-x: auto; width: 0; min-width: 100%; }
.walk table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
.walk table.chain { width: 100%; }
.walk th, .walk td { padding: .3rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--border-color-primary); }
.walk th { font-weight: 500; color: var(--quiet); }
.walk tr > th:first-child { text-align: left; }
.walk td.now, .walk th.now { background: color-mix(in srgb, var(--ink) 14%, transparent); font-weight: 600;
  color: var(--body-text-color); }
.walk tr.off > * { opacity: .55; }
.walk tr.off > .now { opacity: .8; }
.walk tfoot th, .walk tfoot td { border-bottom: 0; border-top: 2px solid var(--border-color-primary); }
.walk table.all tr.now > * { font-weight: 650; color: var(--body-text-color);
  box-shadow: inset 0 2px var(--ink), inset 0 -2px var(--ink); }
.walk table.all td { background: color-mix(in srgb, var(--ink) calc(var(--weight, 0) * 45%), transparent); }
.walk ol.worked { list-style: none; padding: 0; margin: .75rem 0 0; font-variant-numeric: tabular-nums; }
.walk ol.worked li { padding: .1rem 0; }

.fields { flex-wrap: wrap; }
table.outputs { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
table.outputs th, table.outputs td { padding: .4rem .6rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--border-color-primary); }
table.outputs th { font-weight: 500; white-space: nowrap; color: var(--quiet); }
table.outputs th:nth-child(2), table.outputs td:nth-child(2) { text-align: left; width: 100%; min-width: 11rem; }
table.outputs td span { white-space: pre-wrap; overflow-wrap: anywhere; }
table.outputs i { color: var(--quiet); }
table.outputs tr.now td:nth-child(2) { font-weight: 600; }
.attention .readout { margin: .25rem 0; min-height: 1.5em; font-variant-numeric: tabular-nums; }
.attention .map { display: flex; width: max-content; }
.attention svg { flex: none; }
.attention .names { position: sticky; left: 0; background: var(--body-background-fill); }
.attention text { fill: var(--body-text-color); font-family: var(--font); }
.attention rect { width: var(--cell); height: var(--cell); fill: var(--ink); stroke-width: .5;
  stroke: var(--border-color-primary); }
.attention rect:hover { stroke: var(--body-text-color); stroke-width: 2; }

@media (max-width: 640px) {
  .walk th, .walk td, table.outputs th, table.outputs td { padding: .3rem .35rem; }
  .walk table, table.outputs { font-size: .875rem; }
  /* What was found comes right below the button, the settings of the search after it. */
  .trial > .column:first-child { display: contents; }
  .trial > .column:last-child { order: 1; }
  .trial .form:has(#kind), .trial .fields { order: 2; }
}
"""


def theme() -> gr.themes.Base:
    """Gradio's default theme with fonts that every system has."""
    sans = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "DejaVu Sans Mono", "monospace"]
    return gr.themes.Default(font=sans, font_mono=mono, primary_hue="indigo", secondary_hue="indigo")
