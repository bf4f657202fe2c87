"""`transformer-score` for people in a clone."""

from transformer.cli.score import main

if __name__ == "__main__":
    main()
