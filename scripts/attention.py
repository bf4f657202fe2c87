"""`transformer-attention` for people in a clone."""

from transformer.cli.attention import main

if __name__ == "__main__":
    main()
