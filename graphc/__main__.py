"""`python -m graphc`, for use if the `graphc` script is not on the path."""

from graphc.cli import main

raise SystemExit(main())
