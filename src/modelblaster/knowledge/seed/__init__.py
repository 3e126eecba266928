"""States and techniques that a new memory starts with, as TOML."""
