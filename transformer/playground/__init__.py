"""A local web page to look at attention and to try a bundle; needs the extra ``playground`` (Gradio)."""
