"""`transformer-data` for people in a clone."""

from transformer.cli.data import main

if __name__ == "__main__":
    main()
