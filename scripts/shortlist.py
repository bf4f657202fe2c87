"""`transformer-shortlist` for people in a clone."""

from transformer.cli.shortlist import main

if __name__ == "__main__":
    main()
