"""Searches over anything that can score the next token."""
