"""The scalar operations that expressions are made of: what a dialect must be able to spell."""

from __future__ import annotations

ARITHMETIC = ("add", "sub", "mul", "div", "neg", "abs")
EXTREMES = ("max", "min", "max_number", "min_number")
"""`max` and `min` give NaN if either argument is NaN; `max_number(a, b)` may assume that `a` is not NaN."""
ROUNDING = ("floor", "ceil", "trunc", "round")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LOGIC = ("and", "or", "xor", "not")
SELECT = "select"
CASTS = ("cast", "wrap_int8", "wrap_int16", "wrap_uint8", "round_float16", "round_bfloat16")
"""`cast` goes between compute types, the others round or wrap to a narrow type and stay in the compute type."""
FUNCTIONS = (
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "erf_absolute",
    "pow", "fmod",
)  # fmt: skip

"""`erf_absolute` is erf where only its absolute error matters, because it is added to 1."""

FLOPS = {
    "select": 1, "cast": 0, "sqrt": 4, "div": 4, "exp": 16, "exp2": 14, "expm1": 18, "log": 18, "log2": 19, "log10": 19,
    "log1p": 24, "tanh": 26, "erf": 30, "erf_absolute": 26, "pow": 60, "fmod": 12,
}  # fmt: skip
"""Operations of one element where it is not one: rough counts of the vector polynomials."""

EXPENSIVE = frozenset(name for name, count in FLOPS.items() if count >= 14)
"""Worth keeping in fast memory rather than computing twice."""

DOUBLE_FUNCTIONS = frozenset(FUNCTIONS) - {"erf", "erf_absolute", "fmod"}
"""What exists in float64: programs in float64 keep the library's operator for the rest."""
