"""Derives the coefficients of `backends/cpu/prelude/math*.h` by Chebyshev interpolation in 60 digits.

Run it by hand to print them: `python tests/kernels/fit_polynomials.py`. Each line is one Horner chain, highest power
first, with the largest error of the polynomial on its interval.
"""

from mpmath import chebyfit, erf, erfc, expm1, log, log1p, mp, mpf, sqrt

mp.dps = 60


def show(name, function, interval, terms, digits):
    coefficients, error = chebyfit(function, interval, terms, error=True)
    print(name, f"error {float(error):.1e}")
    print("   ", ", ".join(mp.nstr(c, digits) for c in coefficients))


def away_from_zero(function, limit):
    """A removable singularity at 0 replaced by its value nearby."""
    return lambda x: function(x) if abs(x) > limit else function(mpf(limit))


half_ln2 = log(2) / 2
tiny = mpf(10) ** -18
for digits, exp_terms, log_terms in ((10, 5, 9), (20, 11, 20)):
    show(
        "exp: (exp(r) - 1 - r) / r^2",
        away_from_zero(lambda r: (expm1(r) - r) / r**2, tiny),
        [-half_ln2 * 1.01, half_ln2 * 1.01],
        exp_terms,
        digits,
    )
    if digits == 10:
        show(
            "log: (log1p(f) - f + f^2/2) / f^3",
            away_from_zero(lambda f: (log1p(f) - f + f * f / 2) / f**3, tiny),
            [sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1],
            log_terms,
            digits,
        )
# s = f / (2 + f), log1p(f) = 2 s + s^3 R(s^2); s lies within +-0.1716
for terms, name in ((8, "log64"), (5, "pow32")):
    show(
        f"{name}: R(w) = (2 atanh(s)/s - 2) / w, in w = s^2",
        away_from_zero(lambda w: (log((1 + sqrt(w)) / (1 - sqrt(w))) / sqrt(w) - 2) / w, tiny),
        [tiny, mpf("0.1717") ** 2],
        terms,
        20,
    )
show(
    "erf small: erf(x)/x - 2/sqrt(pi)... as erf(x)/x - 1, in z = x^2",
    away_from_zero(lambda z: erf(sqrt(z)) / sqrt(z) - 1, tiny),
    [tiny, mpf("0.92") ** 2],
    7,
    10,
)
show("erf large: -log(erfc(t)) / t", lambda t: -log(erfc(t)) / t, [mpf("0.90"), mpf("4.0")], 8, 10)
show(
    "erf absolute: -log2(erfc(t)) / t",
    away_from_zero(lambda t: -log(erfc(t)) / t / log(2), tiny),
    [mpf(0), mpf(4)],
    10,
    10,
)
show("2^r: (2^r - 1) / r", away_from_zero(lambda r: expm1(r * log(2)) / r, tiny), [mpf("-0.5"), mpf("0.5")], 6, 10)
