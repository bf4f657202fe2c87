"""`transformer-train` for people in a clone."""

from transformer.cli.train import main

if __name__ == "__main__":
    main()
