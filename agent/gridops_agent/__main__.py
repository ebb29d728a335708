"""`python -m gridops_agent` is `gridops-agent`."""

import sys

from gridops_agent.cli.entry import main

sys.exit(main())
