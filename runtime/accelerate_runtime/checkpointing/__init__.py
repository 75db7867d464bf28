"""Training states on disk: written whole or not at all, checked when they are read.

A state is a folder in Accelerate's layout, to which we add a manifest (sizes and checksums) and each process's position
in its loaders. `folder` makes the writing atomic, `saving` and `loading` say what goes where, `streaming` reads tensors
straight to where they belong.

Nothing is imported here: most scripts never save a state, and those that do pay when they do.
"""
