//! The size of a simulated cache.

use std::str::FromStr;

use crate::units;

/// `1GB`, or `5%` of the bytes of all different objects.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Size {
    Bytes(u64),
    Share(f64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().ends_with('%') {
            let share = units::share(text).map_err(|error| error.to_string())?;
            return if share > 0.0 {
                Ok(Self::Share(share))
            } else {
                Err("a cache of nothing".to_owned())
            };
        }
        units::bytes(text).map(Self::Bytes).map_err(|error| error.to_string())
    }
}

impl Size {
    /// In bytes, for a trace with `distinct_bytes` of different objects.
    pub(super) fn bytes(self, distinct_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => ((distinct_bytes as f64 * share) as u64).max(1),
        }
    }

    /// As people write it: a share with the bytes that it came to.
    pub(super) fn label(self, bytes: u64) -> String {
        match self {
            Self::Bytes(_) => units::show_bytes(bytes),
            Self::Share(share) => {
                let percent = format!("{:.3}", share * 100.0);
                let percent = percent.trim_end_matches('0').trim_end_matches('.');
                format!("{percent} %: {}", units::show_bytes(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_shares() {
        assert_eq!("1GB".parse(), Ok(Size::Bytes(1 << 30)));
        assert_eq!("5%".parse::<Size>().map(|size| size.bytes(1000)), Ok(50));
        assert_eq!(Size::Share(0.005).label(2048), "0.5 %: 2 KB");
        assert!(["0%", "120%", "", "0", "x"].iter().all(|bad| bad.parse::<Size>().is_err()));
    }
}
