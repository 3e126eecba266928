"""The kernel-level search: which slot, which state, which technique, and what became of the candidate."""
