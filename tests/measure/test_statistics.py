from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix_mlir.measure import MIN_PAIRS, Verdict, compare, median, spread

SECONDS = st.floats(1e-6, 1e3)
SAMPLES = st.lists(SECONDS, min_size=MIN_PAIRS, max_size=20)
PAIRS = st.lists(st.tuples(SECONDS, SECONDS), min_size=MIN_PAIRS, max_size=20).map(
    lambda pairs: tuple(zip(*pairs, strict=True))
)
FACTORS = st.floats(0.1, 10)
OPPOSITE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER, Verdict.SAME: Verdict.SAME}


@given(st.lists(SECONDS, min_size=1))
def test_the_median_is_the_one_of_the_standard_library(samples):
    assert median(samples) == pytest.approx(statistics.median(samples))


@given(st.lists(SECONDS, min_size=1), FACTORS)
def test_the_spread_has_no_unit(samples, factor):
    assert spread([factor * sample for sample in samples]) == pytest.approx(spread(samples), abs=1e-9)


@given(SECONDS, st.integers(1, 9))
def test_equal_samples_do_not_spread(sample, count):
    assert spread([sample] * count) == 0


@given(st.lists(st.floats(1, 1.1), min_size=8, max_size=20), SECONDS)
def test_one_outlier_does_not_matter_to_the_spread(samples, outlier):
    assert spread([*samples, 1000 * (1 + outlier)]) < 0.11


@settings(deadline=None)
@given(PAIRS)
def test_the_ratio_is_the_median_of_the_pairs_within_its_interval(pairs):
    a, b = pairs
    compared = compare(a, b)
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    assert compared.ratio == pytest.approx(math.exp(statistics.median(map(math.log, ratios))))
    assert min(ratios) * 0.999 <= compared.low <= compared.ratio * 1.001
    assert compared.ratio * 0.999 <= compared.high <= max(ratios) * 1.001


@settings(deadline=None)
@given(PAIRS)
def test_exchanging_the_programs_inverts_the_comparison(pairs):
    there, back = compare(*pairs), compare(*pairs[::-1])
    assert (1 / back.ratio, 1 / back.high, 1 / back.low) == pytest.approx((there.ratio, there.low, there.high))
    assert back.verdict is OPPOSITE[there.verdict]


@settings(deadline=None)
@given(PAIRS)
def test_the_same_seed_gives_the_same_interval(pairs):
    assert compare(*pairs, seed=3) == compare(*pairs, seed=3)


@settings(deadline=None)
@given(SAMPLES, FACTORS)
def test_a_constant_factor_is_found_whatever_the_drift(samples, factor):
    compared = compare([factor * sample for sample in samples], samples)
    assert (compared.ratio, compared.low, compared.high) == pytest.approx((factor,) * 3)
    if abs(factor - 1) > 1e-6:
        assert compared.verdict is (Verdict.FASTER if factor > 1 else Verdict.SLOWER)


@settings(deadline=None)
@given(SAMPLES)
def test_a_program_is_as_fast_as_itself(samples):
    assert compare(samples, samples).verdict is Verdict.SAME


def test_noise_alone_is_seldom_a_verdict():
    random = np.random.default_rng(0)
    verdicts = [compare(*random.lognormal(0, 0.1, (2, 10))).verdict for _ in range(200)]
    assert verdicts.count(Verdict.SAME) >= 180


def test_a_difference_within_the_noise_is_none_and_one_beyond_it_is_found():
    random = np.random.default_rng(1)
    noise = random.lognormal(0, 0.1, (2, 20))
    assert compare(noise[0] * 1.01, noise[1]).verdict is Verdict.SAME
    assert compare(noise[0] * 1.5, noise[1]).verdict is Verdict.FASTER


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0] * MIN_PAIRS, [1.0] * (MIN_PAIRS + 1)),
        ([], []),
        ([1.0] * (MIN_PAIRS - 1) + [0.0], [1.0] * MIN_PAIRS),
        ([1.0] * MIN_PAIRS, [1.0] * (MIN_PAIRS - 1) + [math.nan]),
    ],
)
def test_samples_that_cannot_be_compared_are_refused(a, b):
    with pytest.raises(ValueError, match="samples"):
        compare(a, b)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([2.0, 3.0], Verdict.FASTER),
        ([0.5, 0.3], Verdict.SLOWER),
        ([2.0, 1.4], Verdict.SAME),
        ([9.0], Verdict.SAME),
        ([1.4] * (MIN_PAIRS - 1), Verdict.SAME),
    ],
)
def test_few_pairs_show_only_what_no_noise_makes(ratios, verdict):
    comparison = compare(ratios, [1.0] * len(ratios))
    assert comparison.verdict is verdict
    assert comparison.low == pytest.approx(min(ratios)) and comparison.high == pytest.approx(max(ratios))
