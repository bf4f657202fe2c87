"""The commands: the only place for Hydra, argument parsing and printing."""
