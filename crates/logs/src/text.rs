//! Numbers, addresses, dates and escaped text into a line, without allocation and (but for IPv6)
//! without formatting machinery.
//!
//! Everything that comes from a network goes through one of the escapes: a line break or a control
//! character in a URL must not make a second log record.

use humboldt_base::civil::{civil_from_days, days_from_civil};
use std::io::Write;
use std::net::IpAddr;

/// Which bytes an escape must replace.
type ByteSet = [bool; 256];

/// Escaping that keeps a URL readable and one word: everything but printable ASCII, and the quote.
const URL_UNSAFE: ByteSet = unsafe_bytes(b"\"");

/// RFC 1738's list of unsafe characters, without `%`, which may already be part of an escape.
const RFC1738_UNSAFE: ByteSet = unsafe_bytes(b"<>\"#{}|\\^~[]`'");

/// As above, with `%` escaped, so that the original can be restored.
const RFC1738_ALL: ByteSet = unsafe_bytes(b"<>\"#{}|\\^~[]`'%");

/// For text between square brackets.
const BRACKETS_UNSAFE: ByteSet = keep_space(unsafe_bytes(b"\"[]%"));

/// For text between double quotes.
const QUOTES_UNSAFE: ByteSet = keep_space(unsafe_bytes(b"\"\\"));

/// For text that is to stay as it is: still no control characters.
const CONTROLS: ByteSet = keep_space(unsafe_bytes(b""));

const fn unsafe_bytes(more: &[u8]) -> ByteSet {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] = byte <= 0x20 || byte >= 0x7f;
        byte += 1;
    }
    let mut n = 0;
    while n < more.len() {
        set[more[n] as usize] = true;
        n += 1;
    }
    set
}

const fn keep_space(mut set: ByteSet) -> ByteSet {
    set[b' ' as usize] = false;
    set
}

/// The way in which text is made harmless (`logformat`'s quoting characters).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// A URL: `%XX` for bytes that are not printable ASCII.
    Url,
    /// The default for header values: `%XX` for unsafe characters, `%` stays.
    Percent,
    /// `#`: `%XX`, also for `%`.
    PercentAll,
    /// `"`: backslashes.
    Quotes,
    /// `[`: `%XX` for bytes that cannot stand in brackets.
    Brackets,
    /// `/`: backslashes, and if there is a blank, quotes around it ([`super::access`] adds them).
    Shell,
    /// `'`: as is, but for control characters.
    AsIs,
    /// For a string in JSON (RFC 8259). What is not UTF-8 becomes U+FFFD.
    Json,
}

impl Escape {
    fn set(self) -> &'static ByteSet {
        match self {
            Escape::Url => &URL_UNSAFE,
            Escape::Percent => &RFC1738_UNSAFE,
            Escape::PercentAll => &RFC1738_ALL,
            Escape::Quotes | Escape::Shell => &QUOTES_UNSAFE,
            Escape::Brackets => &BRACKETS_UNSAFE,
            Escape::AsIs => &CONTROLS,
            Escape::Json => &QUOTES_UNSAFE,
        }
    }
}

/// Appends `text`, escaped.
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &[u8], escape: Escape) {
    if escape == Escape::Json {
        return push_json(out, text);
    }
    let set = escape.set();
    // Nearly every text is plain, and without a branch for each byte that is soon known.
    let has_unsafe = text.iter().fold(false, |found, byte| found | set[usize::from(*byte)]);
    if !has_unsafe {
        return out.extend_from_slice(text);
    }
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| set[usize::from(*byte)]) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, tail)) = tail.split_first() else { return };
        push_escaped_byte(out, *byte, escape);
        rest = tail;
    }
    out.extend_from_slice(rest);
}

fn push_escaped_byte(out: &mut Vec<u8>, byte: u8, escape: Escape) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
    match (escape, byte) {
        (Escape::Quotes | Escape::Shell, b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
        (Escape::Quotes | Escape::Shell | Escape::Brackets, b'\r') => {
            out.extend_from_slice(b"\\r");
        }
        (Escape::Quotes | Escape::Shell | Escape::Brackets, b'\n') => {
            out.extend_from_slice(b"\\n");
        }
        (Escape::Quotes, b'\t') => out.extend_from_slice(b"\\t"),
        (Escape::Quotes | Escape::Shell | Escape::AsIs, 0x80..) => out.push(byte),
        (Escape::Quotes, _) => out.extend_from_slice(&[b'\\', b'x', hex[0], hex[1]]),
        _ => out.extend_from_slice(&[b'%', hex[0], hex[1]]),
    }
}

/// Appends text for a string in JSON. Control characters are escaped, also those that JSON would
/// allow, because terminals obey them (DEL and U+0080 to U+009F).
fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        let mut rest = chunk.valid().as_bytes();
        while let Some(at) = first_control_in(rest) {
            let (plain, tail) = rest.split_at(at);
            out.extend_from_slice(plain);
            rest = push_json_escape(out, tail);
        }
        out.extend_from_slice(rest);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// The place of the first byte of a character that is escaped in JSON.
fn first_control_in(text: &[u8]) -> Option<usize> {
    (0..text.len()).find(|&at| match text[at] {
        b'"' | b'\\' | 0..=0x1f | 0x7f => true,
        // U+0080 to U+009F
        0xc2 => text.get(at + 1).is_some_and(|next| *next < 0xa0),
        _ => false,
    })
}

/// Appends the escape of the first character of `text`; the rest.
fn push_json_escape<'a>(out: &mut Vec<u8>, text: &'a [u8]) -> &'a [u8] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let (code, rest) = match text {
        [0xc2, second, rest @ ..] => (*second, rest),
        [first, rest @ ..] => (*first, rest),
        [] => return text,
    };
    let short = match code {
        b'"' | b'\\' => code,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let hex = [HEX[usize::from(code >> 4)], HEX[usize::from(code & 15)]];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex[0], hex[1]]);
            return rest;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
    rest
}

/// Appends a number in decimal.
pub(crate) fn push_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number with at least `width` characters, filled on the left.
pub(crate) fn push_padded(out: &mut Vec<u8>, number: impl itoa::Integer, width: usize, fill: u8) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    out.extend(std::iter::repeat_n(fill, width.saturating_sub(digits.len())));
    out.extend_from_slice(digits);
}

/// Appends an address.
pub(crate) fn push_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            // Made in one place, and copied once.
            let (mut text, mut len) = ([0; 16], 0);
            for octet in ip.octets() {
                for (least, digit) in [(100, octet / 100), (10, octet / 10 % 10), (0, octet % 10)] {
                    if octet >= least {
                        text[len] = b'0' + digit;
                        len += 1;
                    }
                }
                text[len] = b'.';
                len += 1;
            }
            out.extend_from_slice(&text[..len - 1]);
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(ip) => _ = write!(out, "{ip}"),
    }
}

/// A moment as a calendar shows it (proleptic Gregorian), in some zone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: u8,
    /// 1 to 31.
    pub(crate) day: u8,
    pub(crate) hour: u8,
    pub(crate) minute: u8,
    pub(crate) second: u8,
    /// 0 is Sunday.
    pub(crate) weekday: u8,
    /// Day of the year, 1 to 366.
    pub(crate) year_day: u16,
}

impl Calendar {
    /// The calendar's view of `unix_s` in a zone `offset_s` seconds east of UTC.
    pub(crate) fn at(unix_s: i64, offset_s: i32) -> Self {
        // Years 0 to 9999: any other is not a time of this program.
        let local = unix_s.saturating_add(offset_s.into()).clamp(-62_167_219_200, 253_402_300_799);
        let (days, secs) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        Self {
            year,
            month: month as u8,
            day: day as u8,
            hour: (secs / 3600) as u8,
            minute: (secs / 60 % 60) as u8,
            second: (secs % 60) as u8,
            weekday: (days + 4).rem_euclid(7) as u8,
            year_day: (days - days_from_civil(year, 1, 1) + 1) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &[u8], escape: Escape) -> String {
        let mut out = Vec::new();
        push_escaped(&mut out, text, escape);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn no_escape_lets_a_control_character_through() {
        let all: Vec<u8> = (0..=255).collect();
        for escape in [
            Escape::Url,
            Escape::Percent,
            Escape::PercentAll,
            Escape::Quotes,
            Escape::Brackets,
            Escape::Shell,
            Escape::AsIs,
            Escape::Json,
        ] {
            let mut out = Vec::new();
            push_escaped(&mut out, &all, escape);
            assert!(out.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f), "{escape:?}");
        }
    }

    #[test]
    fn each_escape_has_its_form() {
        let text = b"a b\"c\\d%20[e]\r\n\x01'";
        assert_eq!(escaped(text, Escape::Url), "a%20b%22c\\d%20[e]%0D%0A%01'");
        assert_eq!(escaped(text, Escape::Percent), "a%20b%22c%5Cd%20%5Be%5D%0D%0A%01%27");
        assert_eq!(escaped(text, Escape::PercentAll), "a%20b%22c%5Cd%2520%5Be%5D%0D%0A%01%27");
        assert_eq!(escaped(text, Escape::Quotes), "a b\\\"c\\\\d%20[e]\\r\\n\\x01'");
        assert_eq!(escaped(text, Escape::Brackets), "a b%22c\\d%2520%5Be%5D\\r\\n%01'");
        assert_eq!(escaped(text, Escape::AsIs), "a b\"c\\d%20[e]%0D%0A%01'");
        assert_eq!(escaped(text, Escape::Shell), "a b\\\"c\\\\d%20[e]\\r\\n%01'");
        assert_eq!(escaped(text, Escape::Json), "a b\\\"c\\\\d%20[e]\\r\\n\\u0001'");
    }

    #[test]
    fn strings_in_json_are_utf_8_without_control_characters() {
        for (text, wanted) in [
            (&b"\xff"[..], "\u{fffd}"),
            (b"a\xe2\x82b\xc3", "a\u{fffd}b\u{fffd}"),
            ("é€😀\u{2028}".as_bytes(), "é€😀\u{2028}"),
            ("\u{7f}\u{80}\u{9f}\u{a0}".as_bytes(), "\\u007f\\u0080\\u009f\u{a0}"),
            (b"\t\x08\x0c\x00\x1f/", "\\t\\u0008\\u000c\\u0000\\u001f/"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            let mut out = Vec::new();
            push_escaped(&mut out, text, Escape::Json);
            assert_eq!(std::str::from_utf8(&out), Ok(wanted));
        }
    }

    #[test]
    fn numbers_and_addresses() {
        let mut out = Vec::new();
        push_padded(&mut out, 7_u64, 3, b'0');
        push_padded(&mut out, 12_345_u64, 3, b'0');
        out.push(b' ');
        push_ip(&mut out, "192.0.2.255".parse().unwrap());
        push_ip(&mut out, "2001:db8::1".parse().unwrap());
        assert_eq!(out, b"00712345 192.0.2.2552001:db8::1");
    }

    #[test]
    fn the_calendar_knows_leap_years_and_zones() {
        let at = |s, offset| {
            let c = Calendar::at(s, offset);
            (c.year, c.month, c.day, c.hour, c.minute, c.second, c.weekday, c.year_day)
        };
        assert_eq!(at(0, 0), (1970, 1, 1, 0, 0, 0, 4, 1));
        assert_eq!(at(951_782_399, 0), (2000, 2, 28, 23, 59, 59, 1, 59));
        assert_eq!(at(951_782_400, 0), (2000, 2, 29, 0, 0, 0, 2, 60));
        assert_eq!(at(1_709_251_200, 0), (2024, 3, 1, 0, 0, 0, 5, 61));
        assert_eq!(at(1_735_689_599, 0), (2024, 12, 31, 23, 59, 59, 2, 366));
        assert_eq!(at(1_735_689_599, 3600), (2025, 1, 1, 0, 59, 59, 3, 1));
        assert_eq!(at(-1, 0), (1969, 12, 31, 23, 59, 59, 3, 365));
        assert_eq!(at(i64::MAX, 0).0, 9999);
        assert_eq!(at(i64::MIN, -3600).0, 0);
    }
}
