"""`transformer-average` for people in a clone."""

from transformer.cli.average import main

if __name__ == "__main__":
    main()
