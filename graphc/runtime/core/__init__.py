"""Parts that the whole runtime uses: lazy values, counters, threads, signals, forks, failures,
progress bars."""
