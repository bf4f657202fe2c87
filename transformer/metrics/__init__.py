"""Scores of texts and running means of losses."""
