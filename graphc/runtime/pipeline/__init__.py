"""From a program to compiled code: passes, memory limits, the cache of executables."""
