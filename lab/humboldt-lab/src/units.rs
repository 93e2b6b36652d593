//! Values with units, as people write them on the command line and in experiment files.

use humboldt_lab_subjects::DiskSpeed;
use thiserror::Error;

/// Why a value was not understood.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{text}` is not {expected}")]
pub(crate) struct UnitError {
    text: String,
    expected: &'static str,
}

const SIZES: &str = "a size such as 64MB, 1.5GB or 8192 (bytes; 1 KB = 1024 bytes)";
const TIMES: &str = "a time such as 250ms, 60s, 5min or 4h";
const SHARES: &str = "a share such as 5% or 0.05";

/// `64MB`, `1.5 GiB`, `8192`: bytes. 1 KB = 1 KiB = 1024 bytes, as in squid.conf.
pub(crate) fn bytes(text: &str) -> Result<u64, UnitError> {
    let units: [(&str, f64); 13] = [
        ("", 1.0),
        ("b", 1.0),
        ("bytes", 1.0),
        ("k", 1024.0),
        ("kb", 1024.0),
        ("kib", 1024.0),
        ("m", 1_048_576.0),
        ("mb", 1_048_576.0),
        ("mib", 1_048_576.0),
        ("g", 1_073_741_824.0),
        ("gb", 1_073_741_824.0),
        ("gib", 1_073_741_824.0),
        ("tb", 1_099_511_627_776.0),
    ];
    let value = scaled(text, &units).filter(|value| *value >= 1.0 && *value <= 1e15);
    value.map(|value| value.round() as u64).ok_or_else(|| wrong(text, SIZES))
}

/// `250ms`, `60s`, `5min`: seconds. A bare number is seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, UnitError> {
    let units: [(&str, f64); 9] = [
        ("", 1.0),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("sec", 1.0),
        ("m", 60.0),
        ("min", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    scaled(text, &units)
        .filter(|value| (0.0..=1e9).contains(value))
        .ok_or_else(|| wrong(text, TIMES))
}

/// `5%` or `0.05`: a share from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, UnitError> {
    scaled(text, &[("", 1.0), ("%", 0.01)])
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(|| wrong(text, SHARES))
}

/// A finite number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, UnitError> {
    text.trim()
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite() && *value > 0.0)
        .ok_or_else(|| wrong(text, "a number above 0"))
}

/// How many times as fast as one of 1999 a simulated disk is.
pub(crate) fn disk_speed(text: &str) -> Result<DiskSpeed, UnitError> {
    let factor = text.trim().parse::<f64>().ok();
    factor.and_then(DiskSpeed::times).ok_or_else(|| wrong(text, "a factor from 0.1 to 10000"))
}

/// `0`, `0-3`, `0,2,4-5`: a list of processors.
pub(crate) fn cores(text: &str) -> Result<Vec<usize>, UnitError> {
    const LIST: &str = "a list of processors such as 0, 0-3 or 0,2";
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
        else {
            return Err(wrong(text, LIST));
        };
        if first > last || last >= rustix::thread::CpuSet::MAX_CPU {
            return Err(wrong(text, LIST));
        }
        list.extend(first..=last);
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

fn wrong(text: &str, expected: &'static str) -> UnitError {
    UnitError { text: text.to_owned(), expected }
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    Some(number * factor).filter(|value| value.is_finite())
}

/// `1.5 GB`, `64 MB`: the largest unit that leaves at least 1.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    for (size, name) in units {
        if bytes >= size {
            let value = bytes as f64 / size as f64;
            return if value.fract() < 0.005 {
                format!("{value:.0} {name}")
            } else {
                format!("{value:.2} {name}")
            };
        }
    }
    format!("{bytes} bytes")
}

/// `3 min 20 s`, `45 s`, `2 h 5 min`.
pub(crate) fn show_seconds(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_not() {
        assert_eq!(bytes("64MB"), Ok(64 << 20));
        assert_eq!(bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(bytes("8192"), Ok(8192));
        assert!(
            ["", "MB", "-1", "1 parsec", "0", "1e30 GB", "nan"]
                .iter()
                .all(|text| bytes(text).is_err())
        );
        assert_eq!(seconds("250ms"), Ok(0.25));
        assert_eq!(seconds("4 h"), Ok(14_400.0));
        assert_eq!(share("5%"), Ok(0.05));
        assert!(share("120%").is_err());
        assert_eq!(cores("0,2-4"), Ok(vec![0, 2, 3, 4]));
        assert!(["", "a", "3-1", "99999999"].iter().all(|text| cores(text).is_err()));
        assert!(positive("0").is_err() && positive("inf").is_err() && positive("0.1").is_ok());
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        assert_eq!(show_bytes(64 << 20), "64 MB");
        assert_eq!(show_bytes(3 << 29), "1.50 GB");
        assert_eq!(show_seconds(200.0), "3 min 20 s");
        assert_eq!(show_seconds(7_500.0), "2 h 5 min");
    }
}
