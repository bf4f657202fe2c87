"""`transformer-tokenizer` for people in a clone."""

from transformer.cli.tokenizer import main

if __name__ == "__main__":
    main()
