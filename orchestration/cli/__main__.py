"""`python -m orchestration.cli` is the command `sesame`."""

import sys

from orchestration.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
