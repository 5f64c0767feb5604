"""What all of the runtime uses: lazy values, counters, threads, signals, forks, failures, progress
bars."""
