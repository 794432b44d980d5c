import math

import pytest

import posterity
from posterity.wording import did_you_mean, listed, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (368412.0, "368,400"),
        (-12345.6, "-12,350"),
        (9999.6, "10,000"),
        (1970.0, "1970"),
        (12.5, "12.5"),
        (0.0, "0"),
        (0.12345, "0.1235"),
        (2.5e-7, "2.5e-07"),
        (1.08e9, "1,080,000,000"),
        (3e20, "3e+20"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits_and_commas_from_five_on(value, text):
    assert number(value) == text


def test_fewer_digits_are_no_reason_for_an_exponent():
    assert [number(value, 2) for value in (123.4, 1234.0, 12345.0)] == ["120", "1200", "12,000"]


def test_lists_read_as_sentences_do():
    assert [listed(list(names)) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert listed(["1", "5", "10"], "or") == "1, 5 or 10"


def test_names_that_are_spelt_alike_are_offered_whatever_their_case():
    assert did_you_mean("ENSMBLE", ["map", "ensemble"]) == " Did you mean ensemble?"
    assert did_you_mean("prise", ["Price", "prize"], write=repr) == " Did you mean 'prize' or 'Price'?"
    assert did_you_mean("laplace", ["map", "bbb"]) == ""


def test_an_estimator_of_a_misspelt_method_says_what_was_meant():
    pytest.importorskip("sklearn")
    with pytest.raises(posterity.Error, match=r"got 'ibn'\. Did you mean 'ibnn'\?"):
        posterity.PosteriorClassifier("ibn").fit([[0.0], [1.0]] * 10, [0, 1] * 10)
