//! Arithmetic as in Prometheus: compensated sums, quantiles, and the corner cases of Go.

/// 2^28: the square of a greater number is not changed by adding 1.
const LARGE: f64 = 268_435_456.0;

/// A sum that keeps what rounding loses. Source: A. Neumaier, "Rundungsfehleranalyse einiger Verfahren
/// zur Summation endlicher Summen", ZAMM 54 (1974).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub sum: f64,
    pub lost: f64,
}

impl Sum {
    pub(crate) fn of(value: f64) -> Self {
        Self { sum: value, lost: 0.0 }
    }

    #[must_use]
    pub(crate) fn plus(self, value: f64) -> Self {
        let sum = self.sum + value;
        let lost = if sum.is_infinite() {
            0.0
        } else if self.sum.abs() >= value.abs() {
            self.lost + ((self.sum - sum) + value)
        } else {
            self.lost + ((value - sum) + self.sum)
        };
        Self { sum, lost }
    }

    pub(crate) fn total(self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.lost }
    }
}

/// A mean: the sum divided by the count, or, when the sum would overflow, moved by each value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    sum: Sum,
    count: f64,
    moved: bool,
}

impl Mean {
    pub(crate) fn of(value: f64) -> Self {
        Self { sum: Sum::of(value), count: 1.0, moved: false }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.moved {
            let sum = self.sum.plus(value);
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.moved = true;
            let before = self.count - 1.0;
            self.sum = Sum { sum: self.sum.sum / before, lost: self.sum.lost / before };
        }
        let share = (self.count - 1.0) / self.count;
        let shrunk = Sum { sum: share * self.sum.sum, lost: share * self.sum.lost };
        self.sum = shrunk.plus(value / self.count);
    }

    pub(crate) fn value(self) -> f64 {
        if self.moved {
            self.sum.sum + self.sum.lost
        } else {
            self.sum.sum / self.count + self.sum.lost / self.count
        }
    }
}

/// Returns the quantile of some values, which it sorts: NaN first.
pub(crate) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    values.sort_by(|a, b| nan_first(*a, *b));
    let last = values.len() - 1;
    let rank = q * last as f64;
    let lower = rank.floor().max(0.0);
    let at = |index: usize| values.get(index.min(last)).copied().unwrap_or(f64::NAN);
    let (low, weight) = (lower as usize, rank - rank.floor());
    if weight == 0.0 {
        return at(low);
    }
    at(low) * (1.0 - weight) + at(low + 1) * weight
}

/// Returns a number in the form of Go's `%g`.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => promql_syntax::show_number(value),
    }
}

/// Returns true if two numbers are equal to the last bit, but for the sign of zero.
pub(crate) fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_eq)
}

/// Orders floats with NaN before all others.
pub(crate) fn nan_first(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Orders floats with NaN after all others.
pub(crate) fn nan_last(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns the larger number; NaN if one is NaN and none is infinite upwards.
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (same(a, b) && b.is_sign_negative()) {
        // Of two zeros, the positive one is the larger.
        a
    } else {
        b
    }
}

/// Returns the smaller number; NaN if one is NaN and none is infinite downwards.
pub(crate) fn min(a: f64, b: f64) -> f64 {
    -max(-a, -b)
}

/// Returns -1, 0 or 1, or the number itself if it is NaN or zero.
pub(crate) fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        value
    }
}

/// Returns the inverse hyperbolic sine, with the steps of fdlibm as Go has them. The standard library's
/// needs `hypot` of glibc 2.35, with which no package would run on RHEL 9.
pub(crate) fn asinh(value: f64) -> f64 {
    let size = value.abs();
    let root = (size * size + 1.0).sqrt();
    let result = if size > LARGE {
        size.ln() + std::f64::consts::LN_2
    } else if size > 2.0 {
        (2.0 * size + 1.0 / (root + size)).ln()
    } else {
        (size + size * size / (1.0 + root)).ln_1p()
    };
    result.copysign(value)
}

/// Returns the inverse hyperbolic cosine, also of numbers whose double is infinite.
pub(crate) fn acosh(value: f64) -> f64 {
    if value > LARGE { value.ln() + std::f64::consts::LN_2 } else { value.acosh() }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values are exact")]
mod tests {
    use super::*;

    #[test]
    fn sum_and_mean_keep_what_rounding_loses() {
        let values = [1e100, 1.0, -1e100, 1.0];
        let sum = values.iter().fold(Sum::default(), |sum, value| sum.plus(*value));
        assert_eq!(sum.total(), 2.0);
        let mut mean = Mean::of(f64::MAX);
        mean.add(f64::MAX);
        mean.add(f64::MAX);
        assert!((mean.value() / f64::MAX - 1.0).abs() < 1e-15);
    }

    #[test]
    fn inverse_hyperbolic_sine_holds_at_every_size() {
        for value in [0.0, 1e-300, 1e-9, 0.5, 2.0, 2.5, 1e8, 1e9, 1e300, f64::INFINITY] {
            let sine = asinh(value).sinh();
            assert!(sine == value || (sine / value - 1.0).abs() < 1e-12, "{value}: {sine}");
            assert_eq!(asinh(-value).to_bits(), (-asinh(value)).to_bits());
        }
        assert!(asinh(f64::NAN).is_nan());
    }

    #[test]
    fn quantile_is_between_the_two_nearest_values() {
        assert_eq!(quantile(0.5, &mut [3.0, 1.0]), 2.0);
        assert_eq!(quantile(1.0, &mut [3.0, 1.0]), 3.0);
        assert_eq!(quantile(-0.1, &mut [3.0]), f64::NEG_INFINITY);
        assert!(quantile(0.0, &mut [3.0, f64::NAN]).is_nan());
    }
}
