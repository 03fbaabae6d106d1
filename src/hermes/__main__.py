"""`python -m hermes` is the `hermes` program."""

import sys

from hermes.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
