"""HTTP for the servers of graphc: connections, bodies, tokens and pages.

It knows neither models nor jobs.
"""
