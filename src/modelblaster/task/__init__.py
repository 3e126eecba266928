"""What to optimize: problem files, attributes of modules, live modules, and the constants a person overrides."""
