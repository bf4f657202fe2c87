"""`transformer-audit` for people in a clone."""

from transformer.cli.audit import main

if __name__ == "__main__":
    main()
