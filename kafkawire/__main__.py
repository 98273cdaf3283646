"""Entry point of the `kafkawire` command."""

from kafkawire.cli import main

if __name__ == "__main__":
    main()
