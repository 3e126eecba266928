"""`python -m modelblaster` is the `modelblaster` command."""

import sys

from modelblaster.cli import command

sys.exit(command())
