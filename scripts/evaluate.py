"""`transformer-evaluate` for people in a clone."""

from transformer.cli.evaluate import main

if __name__ == "__main__":
    main()
