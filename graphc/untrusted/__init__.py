"""Programs from files, which may be forged: what must hold before XLA compiles one.

A separate process reads the program (`safe_reading` starts it, `reader` is what it runs) and
reports facts about it (`findings`). The program runs only if allow lists permit everything in it
(`rules`, `comparators`, `kernel_contracts`). Nothing here knows graphs or artifacts.
"""
