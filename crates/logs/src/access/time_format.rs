//! The part of strftime(3) that log formats use, compiled once.

use crate::text::{Calendar, push_number, push_padded};

/// The format of `%tl` and `%tg` without an argument.
pub(super) const DEFAULT: &str = "%d/%b/%Y:%H:%M:%S %z";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A compiled format: bytes to copy, and conversions.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeFormat(Box<[Piece]>);

#[derive(Copy, Clone, Debug)]
enum Piece {
    Byte(u8),
    Conversion(u8),
}

/// Conversions that stand for several others.
const COMPOSED: [(u8, &str); 4] =
    [(b'T', "%H:%M:%S"), (b'F', "%Y-%m-%d"), (b'R', "%H:%M"), (b'D', "%m/%d/%y")];

/// Those that stand for themselves.
const SIMPLE: &[u8] = b"YymdeHMSbhBaAjzsI";

impl TimeFormat {
    /// Compiles a format. Unknown conversions are errors. English names, whatever the locale.
    pub(crate) fn compile(format: &str) -> Result<Self, String> {
        let mut pieces = Vec::with_capacity(format.len());
        compile_into(&mut pieces, format)?;
        Ok(Self(pieces.into()))
    }

    /// Appends the time `unix_s` in a zone `offset_s` seconds east of UTC.
    pub(crate) fn write(&self, out: &mut Vec<u8>, unix_s: i64, offset_s: i32) {
        let time = Calendar::at(unix_s, offset_s);
        for piece in &self.0 {
            match piece {
                Piece::Byte(byte) => out.push(*byte),
                Piece::Conversion(conversion) => convert(out, *conversion, &time, unix_s, offset_s),
            }
        }
    }
}

fn compile_into(pieces: &mut Vec<Piece>, format: &str) -> Result<(), String> {
    let mut bytes = format.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            pieces.push(Piece::Byte(if byte < b' ' || byte == 0x7f { b' ' } else { byte }));
            continue;
        }
        match bytes.next() {
            Some(b'%') => pieces.push(Piece::Byte(b'%')),
            Some(simple) if SIMPLE.contains(&simple) => pieces.push(Piece::Conversion(simple)),
            other => {
                let composed = COMPOSED.iter().find(|(name, _)| Some(*name) == other);
                let Some((_, long)) = composed else {
                    let name = other.map_or('%', char::from);
                    return Err(format!("unknown conversion %{name} in a time format"));
                };
                compile_into(pieces, long)?;
            }
        }
    }
    Ok(())
}

fn convert(out: &mut Vec<u8>, conversion: u8, time: &Calendar, unix_s: i64, offset_s: i32) {
    let month = MONTHS[usize::from(time.month - 1)].as_bytes();
    let day = DAYS[usize::from(time.weekday)].as_bytes();
    match conversion {
        b'Y' => push_padded(out, time.year, 4, b'0'),
        b'y' => push_padded(out, time.year % 100, 2, b'0'),
        b'm' => push_padded(out, time.month, 2, b'0'),
        b'd' => push_padded(out, time.day, 2, b'0'),
        b'e' => push_padded(out, time.day, 2, b' '),
        b'H' => push_padded(out, time.hour, 2, b'0'),
        b'I' => push_padded(out, (time.hour + 11) % 12 + 1, 2, b'0'),
        b'M' => push_padded(out, time.minute, 2, b'0'),
        b'S' => push_padded(out, time.second, 2, b'0'),
        b'b' | b'h' => out.extend_from_slice(&month[..3]),
        b'B' => out.extend_from_slice(month),
        b'a' => out.extend_from_slice(&day[..3]),
        b'A' => out.extend_from_slice(day),
        b'j' => push_padded(out, time.year_day, 3, b'0'),
        b's' => push_number(out, unix_s),
        _ => push_zone(out, offset_s),
    }
}

/// `+0100`.
fn push_zone(out: &mut Vec<u8>, offset_s: i32) {
    out.push(if offset_s < 0 { b'-' } else { b'+' });
    let minutes = offset_s.unsigned_abs() / 60;
    push_padded(out, minutes / 60 * 100 + minutes % 60, 4, b'0');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, unix_s: i64, offset_s: i32) -> String {
        let mut out = Vec::new();
        TimeFormat::compile(format).unwrap().write(&mut out, unix_s, offset_s);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn writes_what_strftime_would() {
        assert_eq!(text(DEFAULT, 1_700_000_000, 0), "14/Nov/2023:22:13:20 +0000");
        assert_eq!(text(DEFAULT, 1_700_000_000, -12_600), "14/Nov/2023:18:43:20 -0330");
        assert_eq!(text("%F %T %a %A %B %j %I %y%%", 1_700_000_000, 0), {
            "2023-11-14 22:13:20 Tue Tuesday November 318 10 23%"
        });
        assert_eq!(text("%e|%s|%D|%R", 1_704_067_200, 0), " 1|1704067200|01/01/24|00:00");
    }

    #[test]
    fn unknown_conversions_are_errors() {
        assert!(TimeFormat::compile("%Q").unwrap_err().contains("%Q"));
        assert!(TimeFormat::compile("%").is_err());
    }
}
