"""`python -m graphc.cli`, where the `graphc` script is not on the path."""

from graphc.cli import main

raise SystemExit(main())
