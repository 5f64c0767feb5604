"""Models of other frameworks as functions of tensors that own variables.

`core` holds what all formats share: the imported model, its weights, and refusals. Each format has
a folder: one table of rules, a file for each family of operators. The package of a format is
imported when a file of this format is read. No importer executes or unpickles anything from a file.
"""
