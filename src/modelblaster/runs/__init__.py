"""A run on disk: its folder, its journal, what is left to do when it was interrupted, and the artifact it ends with."""
