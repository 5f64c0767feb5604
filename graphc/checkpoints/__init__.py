"""Checkpoints: the state of a training job in a folder, written so that a crash loses nothing.

A checkpoint speaks of variables by their names, in the shapes that the user gave them. How a
session packs its state, or divides it among devices, is not stored. Public as `gc.train`.

    tree        trees of Python values and arrays as JSON and arrays
    manifest    what a checkpoint holds, checked when it is read
    shards      arrays in safetensors files, with checksums
    folder      the checkpoints in a folder: names, atomic writing, removal, the lock of a writer
    retention   which checkpoints stay
    contents    the state of a session, out and in
    selection   which variables to restore, from which names
    restoring   `restore` and its report
    checkpointer    `Checkpointer`
    orbax       Orbax's form
"""
