"""Whole models built from a configuration and a vocabulary size."""
