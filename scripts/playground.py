"""`transformer-playground` for people in a clone."""

from transformer.cli.playground import main

if __name__ == "__main__":
    main()
