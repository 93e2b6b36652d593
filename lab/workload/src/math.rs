//! Functions that give the same bits everywhere: logarithm and exponential from `libm`, which
//! compiles its own code for every processor, and what is made of them.
//!
//! The C library picks other code for other processors, and the last bit of its results differs.
//! Robots and origins on different hosts would then disagree about a size by one byte, and the
//! cache under test would be blamed.

pub(crate) use libm::{exp, log as ln};

/// A positive number to a power. `libm::pow` is right to the last bit and takes several times as
/// long.
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
