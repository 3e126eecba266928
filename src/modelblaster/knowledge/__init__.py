"""What is remembered from run to run: outcomes, rewards of techniques, verified implementations; states as data."""
