"""`python -m innerloop` is the command `innerloop`."""

import sys

from innerloop.cli import main

if __name__ == "__main__":
    sys.exit(main())
