"""The script that `graphc launch` starts for jobs that are commands of graphc.

It has a folder of its own, because Python finds modules in the folder of a script first.
"""
