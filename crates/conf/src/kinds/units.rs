//! Sizes and times with units.

use std::time::Duration;

use super::Kind;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};

/// A size whose bare number is in bytes; `none` is the largest size.
pub(crate) struct Bytes;
/// A size whose bare number is in KB; `none` and `-1` are no limit.
pub(crate) struct KBytes;
/// A time of at least a second, or 0.
pub(crate) struct Seconds;
/// A time of at least a millisecond, or 0.
pub(crate) struct Millis;

/// A size from 1 KB to 1 MB of a head; others become the nearest, with a warning.
pub(crate) struct HeadBytes;

/// Longest time that can be configured: 292 years, as far as Squid's nanoseconds reach.
const TIME_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// The range of a limit for heads.
const HEAD_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 20;

impl Kind for Bytes {
    type Out = u64;
    const NAME: &'static str = "size";

    fn apply(out: &mut u64, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_size(line, 1)?.unwrap_or(u64::MAX);
        Ok(())
    }
}

impl Kind for HeadBytes {
    type Out = u64;
    const NAME: &'static str = "size from 1 KB to 1 MB";

    fn apply(out: &mut u64, line: &mut Line<'_>) -> Result<(), Problem> {
        let written = read_size(line, 1)?.unwrap_or(u64::MAX);
        *out = written.clamp(*HEAD_BYTES.start(), *HEAD_BYTES.end());
        if *out != written {
            let name = line.name.clone();
            let message =
                format!("`{}` can be 1 KB to 1 MB: {} KB are used", name.text, *out >> 10);
            line.warn(&name, message, None);
        }
        Ok(())
    }
}

impl Kind for KBytes {
    type Out = Option<u64>;
    const NAME: &'static str = "size in KB, or -1";

    fn apply(out: &mut Option<u64>, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_size(line, 1024)?;
        Ok(())
    }
}

impl Kind for Seconds {
    type Out = Duration;
    const NAME: &'static str = "time";

    fn apply(out: &mut Duration, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_time(line, Duration::from_secs(1))?;
        Ok(())
    }
}

impl Kind for Millis {
    type Out = Duration;
    const NAME: &'static str = "time";

    fn apply(out: &mut Duration, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_time(line, Duration::from_millis(1))?;
        Ok(())
    }
}

/// Reads `NUMBER [UNIT]` or `NUMBERUNIT`; `None` for `none` and -1.
pub(crate) fn read_size(line: &mut Line<'_>, default_unit: u64) -> Result<Option<u64>, Problem> {
    let token = line.expect("a size")?;
    if token.text == "none" {
        return Ok(None);
    }
    let (number, suffix) = split_number(&token.text);
    let value: f64 = number.parse().map_err(|_| not_a_size(&token))?;
    let unit = if suffix.is_empty() {
        match line.peek() {
            Some(next) if size_unit(&next.text).is_some() => {
                line.next()?;
                size_unit(&next.text)
            }
            Some(next) if !next.text.is_empty() && value > 0.0 && looks_like_unit(&next.text) => {
                return Err(next
                    .error(format!("`{}` is not a unit of size", next.text))
                    .with_help(UNITS_HELP));
            }
            _ => None,
        }
    } else {
        Some(size_unit(suffix).ok_or_else(|| not_a_size(&token))?)
    };
    if value == -1.0 {
        return Ok(None);
    }
    let bytes = value * unit.unwrap_or(default_unit) as f64;
    if bytes < 0.0 {
        return Err(token.error("a size cannot be negative"));
    }
    // u64::MAX as f64 rounds up to 2^64, which does not fit.
    if bytes >= u64::MAX as f64 {
        return Err(token.error("this size is too large"));
    }
    Ok(Some(bytes as u64))
}

/// Reads `NUMBERUNIT`, the form of sizes in options; a bare number is in bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, suffix) = split_number(text);
    let unit = if suffix.is_empty() { 1 } else { size_unit(suffix)? };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

const UNITS_HELP: &str = "units are bytes, KB, MB, GB and TB, of 1024 each";

fn not_a_size(token: &Token) -> Problem {
    token.error(format!("`{}` is not a size", token.text)).with_help(UNITS_HELP)
}

fn looks_like_unit(text: &str) -> bool {
    text.len() <= 6
        && text.bytes().all(|b| b.is_ascii_alphabetic())
        && text.to_ascii_lowercase().contains('b')
}

fn size_unit(text: &str) -> Option<u64> {
    match text.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => Some(1),
        "k" | "kb" | "kib" | "kbytes" => Some(1 << 10),
        "m" | "mb" | "mib" | "mbytes" => Some(1 << 20),
        "g" | "gb" | "gib" | "gbytes" => Some(1 << 30),
        "t" | "tb" | "tib" | "tbytes" => Some(1 << 40),
        _ => None,
    }
}

/// Splits a word after its number (sign, digits, one point).
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'));
    text.split_at(end.unwrap_or(text.len()))
}

/// Reads `NUMBER UNIT` or `NUMBERUNIT`. A bare number counts in seconds, with a warning, as old
/// versions of Squid did.
pub(super) fn read_time(line: &mut Line<'_>, smallest: Duration) -> Result<Duration, Problem> {
    let token = line.expect("a time")?;
    let (number, suffix) = split_number(&token.text);
    let value: f64 = number.parse().map_err(|_| not_a_time(&token))?;
    let unit_token = if suffix.is_empty() {
        match line.peek() {
            Some(next) if time_unit(&next.text).is_some() => line.next()?,
            _ => None,
        }
    } else {
        Some(Token { text: suffix.to_owned(), ..token.clone() })
    };
    if value == 0.0 {
        return Ok(Duration::ZERO);
    }
    let unit = match &unit_token {
        Some(unit) => time_unit(&unit.text).ok_or_else(|| not_a_time(&token))?,
        None if line.peek().is_some() => {
            let next = line.expect("a unit of time")?;
            return Err(next
                .error(format!("`{}` is not a unit of time", next.text))
                .with_help(TIME_UNITS_HELP));
        }
        None => {
            line.warn(
                &token,
                "no unit of time: seconds are assumed",
                Some("write `seconds` after the number"),
            );
            Duration::from_secs(1)
        }
    };
    if unit < smallest {
        return Err(unit_token.as_ref().unwrap_or(&token).error("this unit is too small here"));
    }
    let seconds = value * unit.as_secs_f64();
    if seconds < 0.0 {
        return Err(token.error("a time cannot be negative"));
    }
    if !seconds.is_finite() || seconds > TIME_MAX.as_secs_f64() {
        return Err(token.error("a time cannot exceed 292 years"));
    }
    let exact = Duration::from_secs_f64(seconds);
    let whole_units = if smallest.as_secs() > 0 {
        Duration::from_secs(exact.as_secs())
    } else {
        Duration::from_millis(u64::try_from(exact.as_millis()).unwrap_or(u64::MAX))
    };
    if whole_units.is_zero() {
        return Err(token.error("this time is too small here"));
    }
    Ok(whole_units)
}

const TIME_UNITS_HELP: &str = "units run from milliseconds over seconds, minutes, hours, days, weeks, fortnights, \
                               months and years to decades";

fn not_a_time(token: &Token) -> Problem {
    token.error(format!("`{}` is not a time", token.text)).with_help(TIME_UNITS_HELP)
}

/// Units of time, singular, plural and Squid's habit of comparing only the beginning (`secs` is not
/// one).
fn time_unit(text: &str) -> Option<Duration> {
    const DAY_S: u64 = 86_400;
    // A year has 365.2522 days, as in Squid.
    const YEAR_S: u64 = 31_557_790;
    let lower = text.to_ascii_lowercase();
    let table = [
        ("nanosecond", Duration::from_nanos(1)),
        ("microsecond", Duration::from_micros(1)),
        ("millisecond", Duration::from_millis(1)),
        ("second", Duration::from_secs(1)),
        ("minute", Duration::from_secs(60)),
        ("hour", Duration::from_secs(3600)),
        ("day", Duration::from_secs(DAY_S)),
        ("week", Duration::from_secs(7 * DAY_S)),
        ("fortnight", Duration::from_secs(14 * DAY_S)),
        ("month", Duration::from_secs(30 * DAY_S)),
        ("year", Duration::from_secs(YEAR_S)),
        ("decade", Duration::from_secs(10 * YEAR_S)),
    ];
    table.iter().find(|(name, _)| lower.starts_with(name)).map(|(_, unit)| *unit)
}

#[cfg(test)]
mod tests {
    use crate::{Config, parse_str};

    fn config(text: &str) -> Result<Config, String> {
        let (config, diagnostics) = parse_str("t", &format!("http_port 1\n{text}\n"));
        if diagnostics.has_errors() {
            Err(diagnostics.render_from(false, crate::Severity::Error))
        } else {
            Ok(config)
        }
    }

    #[test]
    fn sizes_with_and_without_units() {
        for (text, bytes) in [
            ("8 MB", 8 << 20),
            ("8MB", 8 << 20),
            ("8 mb", 8 << 20),
            ("1.5 GB", 3 << 29),
            ("2 TB", 2 << 40),
            ("4096 bytes", 4096),
            ("4096", 4096),
            ("0", 0),
            ("none", u64::MAX),
        ] {
            assert_eq!(
                config(&format!("cache_mem {text}")).map(|c| c.cache_mem),
                Ok(bytes),
                "{text}"
            );
        }
        for text in
            ["", "x", "8 XB", "8XB", "-5 MB", "1e999 MB", "99999999999 TB", "NaN", "--1 KB", ". KB"]
        {
            assert!(config(&format!("cache_mem {text}")).is_err(), "{text}");
        }
    }

    #[test]
    fn quick_abort_counts_in_kilobytes_and_minus_one_is_no_limit() {
        assert_eq!(config("quick_abort_min 32").map(|c| c.quick_abort_min), Ok(Some(32 << 10)));
        assert_eq!(config("quick_abort_min -1 KB").map(|c| c.quick_abort_min), Ok(None));
        assert_eq!(config("quick_abort_min 16 MB").map(|c| c.quick_abort_min), Ok(Some(16 << 20)));
    }

    #[test]
    fn heads_of_more_than_a_megabyte_are_not_promised() {
        let heads = |text: &str| {
            let text =
                format!("http_port 1\nhttp_access allow all\nreply_header_max_size {text}\n");
            let (config, found) = parse_str("t", &text);
            (config.reply_header_max_size, found.count(crate::Severity::Warning))
        };
        assert_eq!(heads("1 MB"), (1 << 20, 0));
        assert_eq!(heads("2 MB"), (1 << 20, 1));
        assert_eq!(heads("none"), (1 << 20, 1));
        assert_eq!(heads("100 bytes"), (1 << 10, 1));
    }

    #[test]
    fn times() {
        for (text, seconds) in [
            ("15 minutes", 900),
            ("1 day", 86_400),
            ("2 weeks", 14 * 86_400),
            ("1 fortnight", 14 * 86_400),
            ("1.5 hours", 5400),
            ("30 Seconds", 30),
            ("0", 0),
            ("60", 60),
            ("1 decade", 315_577_900),
            ("292 years", 292 * 31_557_790),
        ] {
            let got =
                config(&format!("connect_timeout {text}")).map(|c| c.connect_timeout.as_secs());
            assert_eq!(got, Ok(seconds), "{text}");
        }
        for text in
            ["", "soon", "5 parsecs", "-5 seconds", "500 milliseconds", "0.1 seconds", "293 years"]
        {
            assert!(config(&format!("connect_timeout {text}")).is_err(), "{text}");
        }
        let got = config("dns_timeout 500 milliseconds").map(|c| c.dns_timeout.as_millis());
        assert_eq!(got, Ok(500));
    }
}
