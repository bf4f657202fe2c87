"""Behavioural checks of a model: what its outputs do when its inputs change."""
