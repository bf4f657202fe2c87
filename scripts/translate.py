"""`transformer-translate` for people in a clone."""

from transformer.cli.translate import main

if __name__ == "__main__":
    main()
