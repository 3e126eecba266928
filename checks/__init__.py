"""The house rules that ruff and mypy do not know: who imports whom, how large things are, what may be named where.

`python -m checks` runs all of them over the package and exits with 1 if one is broken.
"""
