//! Numbers, moments and foreign text as people read them.

use jiff::Timestamp;

/// Stands where there is no number.
pub(crate) const NOTHING: &str = "–";

/// `value` with this many decimals and commas between thousands; a dash if it is not finite.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::with_capacity(text.len() + whole.len() / 3 + 1);
    // "-0.0" would be true and confusing.
    if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        out.push('−');
    }
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A count with commas between thousands.
pub(crate) fn count(value: u64) -> String {
    number(value as f64, 0)
}

/// Three significant digits or all whole ones: 0.123, 12.3, 1,234.
pub(crate) fn rough(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    number(value, decimals)
}

/// A ratio as per cent with one decimal.
pub(crate) fn percent(ratio: f64) -> String {
    if ratio.is_finite() { format!("{} %", number(ratio * 100.0, 1)) } else { NOTHING.to_owned() }
}

/// A small share of errors as per cent: none of them is shown as nothing.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let ratio = part as f64 / whole.max(1) as f64;
    if part > 0 && ratio < 0.0005 { "< 0.1 %".to_owned() } else { percent(ratio) }
}

/// A count with its noun: `1 answer`, `2 answers`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Bytes in the largest binary unit that leaves at least one.
pub(crate) fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{} B", number(value, 0))
    } else {
        format!("{} {}", rough(value), UNITS.get(unit).copied().unwrap_or_default())
    }
}

/// Bytes as MiB, for axes.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A time of milliseconds: `0.123 ms`, `12.3 ms`, `1.53 s`.
pub(crate) fn milliseconds(value: f64) -> String {
    match value {
        value if !value.is_finite() => NOTHING.to_owned(),
        value if value.abs() >= 999.5 => format!("{} s", rough(value / 1e3)),
        value => format!("{} ms", rough(value)),
    }
}

/// Seconds as `h:mm:ss` or `m:ss`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NOTHING.to_owned();
    }
    let total = seconds.round() as u64;
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Seconds with their units: `45 s`, `2 min 30 s`, `3 h 5 min`.
pub(crate) fn minutes(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NOTHING.to_owned();
    }
    let total = seconds.round() as u64;
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    let parts = match (hours, minutes) {
        (0, 0) => [(seconds, "s"), (0, "")],
        (0, _) => [(minutes, "min"), (seconds, "s")],
        _ => [(hours, "h"), (minutes, "min")],
    };
    let first = format!("{} {}", count(parts[0].0), parts[0].1);
    match parts[1] {
        (0, _) => first,
        (second, unit) => format!("{first} {second} {unit}"),
    }
}

/// Unix seconds as `2026-01-31 23:59 UTC`.
pub(crate) fn date_time(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|unix_s| Timestamp::from_second(unix_s).ok());
    time.map_or_else(|| NOTHING.to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// Text that others wrote (a server's answer, a URL), fit for one line: no control or direction
/// characters, and at most `chars_max` characters.
pub(crate) fn plain(text: &str, chars_max: usize) -> String {
    let mut out: String = text.chars().take(chars_max).map(harmless).collect();
    if text.chars().nth(chars_max).is_some() {
        out.push('…');
    }
    out
}

/// The same for text of several lines.
pub(crate) fn plain_lines(text: &str, chars_max: usize) -> String {
    let mut out: String = text
        .chars()
        .take(chars_max)
        .map(|c| if matches!(c, '\n' | '\t') { c } else { harmless(c) })
        .collect();
    if text.chars().nth(chars_max).is_some() {
        out.push_str("\n… (cut here; summary.json has all of it)");
    }
    out
}

fn harmless(c: char) -> char {
    let turns_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns_direction || c == '\u{feff}' { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_no_surprises() {
        assert_eq!(number(1234567.891, 1), "1,234,567.9");
        assert_eq!(number(-1234.0, 0), "−1,234");
        assert_eq!(number(-0.001, 1), "0.0");
        assert_eq!(number(f64::NAN, 1), "–");
        assert_eq!(count(999), "999");
        assert_eq!(
            [rough(0.0), rough(0.1234), rough(12.34), rough(1234.5)],
            ["0", "0.123", "12.3", "1,234"]
        );
        assert_eq!(percent(0.5764), "57.6 %");
        assert_eq!([share(0, 9), share(1, 99_999), share(1, 10)], ["0.0 %", "< 0.1 %", "10.0 %"]);
        assert_eq!([counted(1, "answer"), counted(2000, "answer")], ["1 answer", "2,000 answers"]);
        assert_eq!([bytes(12.0), bytes(1536.0), bytes(3e9)], ["12 B", "1.50 KiB", "2.79 GiB"]);
        assert_eq!([milliseconds(0.5), milliseconds(1530.0)], ["0.500 ms", "1.53 s"]);
        assert_eq!([minutes(45.0), minutes(150.0)], ["45 s", "2 min 30 s"]);
        assert_eq!([minutes(120.0), minutes(11_100.0)], ["2 min", "3 h 5 min"]);
        assert_eq!([duration(59.6), duration(3725.0)], ["1:00", "1:02:05"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_time(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_time(951_868_799), "2000-02-29 23:59 UTC");
        assert_eq!(date_time(1_767_225_600), "2026-01-01 00:00 UTC");
        assert_eq!(date_time(u64::MAX), NOTHING);
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\n\u{202e}c", 99), "a\u{fffd}[31mb\u{fffd}\u{fffd}c");
        assert_eq!(plain("abcdef", 3), "abc…");
        assert_eq!(plain_lines("a\n\u{7}b", 9), "a\n\u{fffd}b");
    }
}
