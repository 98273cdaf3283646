"""Entry point of the `kafkawire` command."""


def main() -> None:
    """Run the command line."""
    raise SystemExit("kafkawire: nothing to run yet")


if __name__ == "__main__":
    main()
