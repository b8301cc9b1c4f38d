"""`python -m imgcheck`."""

import sys

from imgcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
