"""Corpora, subwords, batches."""
