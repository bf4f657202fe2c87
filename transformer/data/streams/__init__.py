"""Batches straight from files that are too large to prepare."""
