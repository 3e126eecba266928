"""Who writes candidates."""
