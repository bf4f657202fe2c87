"""`transformer-generate` for people in a clone."""

from transformer.cli.generate import main

if __name__ == "__main__":
    main()
