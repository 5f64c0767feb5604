"""Where two runs part: `gc.compare` finds the first node whose values differ by more than rounding.

Each value of a run is computed again in float64 from the run's own values before it. Its distance
from that result is its local error: rounding, or a fault. So an error that only grows along the
graph is not taken for a fault.
"""
