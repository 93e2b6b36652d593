//! Numbers as people read them in verdicts.

use crate::LOAD_MAX_PER_S;

/// A duration given in µs: `0.8 ms`, `312 ms`, `2.41 s`.
pub(crate) fn duration(us: f64) -> String {
    match us {
        us if us < 9_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us if us < 99_500_000.0 => format!("{:.2} s", us / 1e6),
        us => format!("{:.0} s", us / 1e6),
    }
}

/// A share: `0.12 %`, `97.3 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// A rate: `0.25/s`, `137/s`, `1234/s`.
pub(crate) fn rate(per_s: f64) -> String {
    if per_s < 99.5 { format!("{per_s:.2}/s") } else { format!("{per_s:.0}/s") }
}

/// A bound of the load: `1234/s`, or that there is none.
pub(crate) fn highest(per_s: f64) -> String {
    if per_s >= LOAD_MAX_PER_S { "not limited".to_owned() } else { rate(per_s) }
}

/// A percentile: `p95`, `p99.9`.
pub(crate) fn percentile(percentile: f64) -> String {
    format!("p{percentile}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let durations = [800.0, 9_949.0, 9_951.0, 312_000.0, 999_600.0, 2_412_000.0, 120e6];
        let words: Vec<String> = durations.into_iter().map(duration).collect();
        assert_eq!(words, ["0.8 ms", "9.9 ms", "10 ms", "312 ms", "1.00 s", "2.41 s", "120 s"]);
        assert_eq!((share(0.0012), share(0.973)), ("0.12 %".into(), "97.3 %".into()));
        assert_eq!((rate(0.25), rate(1_234.4)), ("0.25/s".into(), "1234/s".into()));
        assert_eq!((highest(1e7), highest(400.0)), ("not limited".into(), "400/s".into()));
        assert_eq!((percentile(95.0), percentile(99.9)), ("p95".into(), "p99.9".into()));
    }
}
