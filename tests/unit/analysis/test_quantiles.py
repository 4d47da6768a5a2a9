"""The program's quantiles against those of SciPy."""

import pytest
from scipy import special

from app.analysis.quantiles import chi_square, noncentrality, student_t

DEGREES = (1, 1.01, 2, 2.5, 3, 4, 7.3, 18, 58, 198.6, 1e4, 1e5)


@pytest.mark.parametrize("probability", [0.55, 0.75, 0.95, 0.975, 0.985, 0.999, 0.9999, 1 - 1e-6, 1 - 1e-9])
@pytest.mark.parametrize("degrees", DEGREES)
def test_student_s_t(degrees: float, probability: float) -> None:
    assert student_t(degrees, probability) == pytest.approx(special.stdtrit(degrees, probability), rel=1e-7)


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("degrees", DEGREES)
def test_chi_square(degrees: float, probability: float) -> None:
    found = chi_square(degrees, probability)
    assert special.chdtr(degrees, found) == pytest.approx(probability, rel=1e-8)


def test_a_tail_thinner_than_any_number_has_no_quantile_instead_of_a_wrong_one() -> None:
    with pytest.raises(ArithmeticError, match="no quantile for a probability of 1e-160"):
        chi_square(1.0, 1e-160)


@pytest.mark.parametrize("t", [1.7, 2.3, 4.3, 12.7])
@pytest.mark.parametrize("probability", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("degrees", [degrees for degrees in DEGREES if degrees >= 2])
def test_the_shift_of_a_noncentral_t(degrees: float, probability: float, t: float) -> None:
    # SciPy's inverse is right to six digits only; its distribution function is exact.
    found = noncentrality(degrees, probability, t)
    assert special.nctdtr(degrees, found, t) == pytest.approx(probability, rel=1e-7)
