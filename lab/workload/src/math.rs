//! Logarithm, exponential and normal quantile from additions, multiplications and divisions only.
//!
//! The C library picks other code for other processors, and the last bit of its results differs.
//! Robots and origins on different hosts would then disagree about a size by one byte, and the
//! cache under test would be blamed.

use std::f64::consts::{LN_2, SQRT_2};

/// Natural logarithm of a positive, finite, normal number.
pub(crate) fn ln(value: f64) -> f64 {
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh s, with |s| < 0.172: nine terms leave less than one unit in the last place.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0_f64] {
        sum = sum * square + 1.0 / odd;
    }
    exponent as f64 * LN_2 + 2.0 * s * (1.0 + square * sum)
}

/// e to the power of a number; cut to ±700, where doubles end.
pub(crate) fn exp(value: f64) -> f64 {
    let value = value.clamp(-700.0, 700.0);
    let halvings = (value / LN_2).round();
    let rest = value - halvings * LN_2;
    // |rest| < 0.347: thirteen terms of the power series.
    let mut sum = 1.0;
    for term in [13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0_f64] {
        sum = 1.0 + sum * rest * (1.0 / term);
    }
    sum * f64::from_bits(((halvings as i64 + 1023) as u64) << 52)
}

/// A positive number to a power.
pub(crate) fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

/// Below this share (and above its complement) the tails of the normal distribution begin.
const TAIL: f64 = 0.024_25;

/// The number that a standard normal variable exceeds with probability 1 − `share` (0 < share < 1).
/// P. J. Acklam's rational approximation, relative error below 1.2e-9.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    if share < TAIL {
        normal_tail((-2.0 * ln(share)).sqrt())
    } else if share > 1.0 - TAIL {
        -normal_tail((-2.0 * ln(1.0 - share)).sqrt())
    } else {
        let distance = share - 0.5;
        let square = distance * distance;
        distance * polynomial(&CENTRE_ABOVE, square) / polynomial(&CENTRE_BELOW, square)
    }
}

fn normal_tail(distance: f64) -> f64 {
    polynomial(&TAIL_ABOVE, distance) / polynomial(&TAIL_BELOW, distance)
}

#[inline]
fn polynomial(factors: &[f64], value: f64) -> f64 {
    factors.iter().fold(0.0, |sum, factor| sum * value + factor)
}

const CENTRE_ABOVE: [f64; 6] = [
    -3.969_683_028_665_376e1,
    2.209_460_984_245_205e2,
    -2.759_285_104_469_687e2,
    1.383_577_518_672_69e2,
    -3.066_479_806_614_716e1,
    2.506_628_277_459_239,
];
const CENTRE_BELOW: [f64; 6] = [
    -5.447_609_879_822_406e1,
    1.615_858_368_580_409e2,
    -1.556_989_798_598_866e2,
    6.680_131_188_771_972e1,
    -1.328_068_155_288_572e1,
    1.0,
];
const TAIL_ABOVE: [f64; 6] = [
    -7.784_894_002_430_293e-3,
    -3.223_964_580_411_365e-1,
    -2.400_758_277_161_838,
    -2.549_732_539_343_734,
    4.374_664_141_464_968,
    2.938_163_982_698_783,
];
const TAIL_BELOW: [f64; 5] = [
    7.784_695_709_041_462e-3,
    3.224_671_290_700_398e-1,
    2.445_134_137_142_996,
    3.754_408_661_907_416,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64, relative: f64) -> bool {
        (left - right).abs() <= relative * right.abs().max(1e-300)
    }

    #[test]
    fn logarithm_and_exponential_agree_with_the_library() {
        for step in 1..2_000 {
            let value = f64::from(step) * 0.37;
            assert!(close(ln(value), value.ln(), 1e-14), "ln {value}");
            let power = f64::from(step - 1_000) * 0.69;
            assert!(close(exp(power), power.exp(), 1e-13), "exp {power}");
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(close(ln(1e-16), 1e-16_f64.ln(), 1e-15));
        assert!(close(pow(2.0, 10.0), 1_024.0, 1e-14));
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (share, quantile) in [
            (0.5, 0.0),
            (0.841_344_746_068_543, 1.0),
            (0.975, 1.959_963_984_540_054),
            (0.999, 3.090_232_306_167_813),
            (0.01, -2.326_347_874_040_841),
            (1e-9, -5.997_807_015_008_18),
        ] {
            assert!(
                (normal_quantile(share) - quantile).abs() < 1e-8,
                "{share}: {}",
                normal_quantile(share)
            );
        }
    }
}
