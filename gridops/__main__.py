"""`python -m gridops` is `gridops`."""

import sys

from gridops.cli.entry import main

sys.exit(main())
