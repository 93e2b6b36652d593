//! HTTP dates (RFC 9110 5.6.7) as unix seconds.

use std::cell::Cell;

use humboldt_base::civil::{civil_from_days, days_from_civil};

/// Length of the preferred form, in bytes: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_BYTES: usize = 29;

/// 0001-01-01 00:00:00 and 9999-12-31 23:59:59: the range of years with four digits.
const WRITABLE_S: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

/// Reads any of the three forms of RFC 9110 5.6.7, in any case, and nothing else: a malformed date
/// counts as absent, and as past in `Expires`. Two-digit years, which only the obsolete RFC 850
/// form has, are 1970 to 2069. The name of the day is not compared with the date.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    if let Some(known) = LAST_READ.with(|last| last.iter().find_map(|one| one.get().of(text))) {
        return Some(known);
    }
    let unix_s =
        parse_preferred(text).or_else(|| parse_rfc850(text)).or_else(|| parse_asctime(text))?;
    if let Ok(text) = text.try_into() {
        LAST_READ.with(|[newest, before]| {
            before.set(newest.get());
            newest.set(Read { text, unix_s });
        });
    }
    Some(unix_s)
}

/// A date that was read.
#[derive(Copy, Clone)]
struct Read {
    text: [u8; DATE_BYTES],
    unix_s: i64,
}

impl Read {
    /// Before the first one.
    const EPOCH: Self = Self { text: *b"Thu, 01 Jan 1970 00:00:00 GMT", unix_s: 0 };

    fn of(self, text: &[u8]) -> Option<i64> {
        (self.text == *text).then_some(self.unix_s)
    }
}

thread_local! {
    /// The last two of this thread. Each field of an answer is read more than once, and answers of
    /// one second have the same Date.
    static LAST_READ: [Cell<Read>; 2] = const { [const { Cell::new(Read::EPOCH) }; 2] };
}

/// Writes the preferred form. Times outside the years 1 to 9999 are written as the nearest end.
pub fn write(unix_s: i64, out: &mut [u8; DATE_BYTES]) {
    let unix_s = unix_s.clamp(*WRITABLE_S.start(), *WRITABLE_S.end());
    let (days, second_of_day) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    *out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    copy_name(out, 0, DAYS, days.rem_euclid(7));
    copy_name(out, 8, MONTHS, month - 1);
    two_digits(out, 5, day);
    two_digits(out, 12, year / 100);
    two_digits(out, 14, year % 100);
    two_digits(out, 17, second_of_day / 3600);
    two_digits(out, 20, second_of_day / 60 % 60);
    two_digits(out, 23, second_of_day % 60);
}

/// The preferred form of a time.
#[must_use]
pub fn format(unix_s: i64) -> [u8; DATE_BYTES] {
    let mut out = [0; DATE_BYTES];
    write(unix_s, &mut out);
    out
}

/// The preferred form exactly, without searching.
fn parse_preferred(text: &[u8]) -> Option<i64> {
    let [
        _,
        _,
        _,
        b',',
        b' ',
        d1,
        d2,
        b' ',
        m1,
        m2,
        m3,
        b' ',
        y1,
        y2,
        y3,
        y4,
        b' ',
        time @ ..,
        b' ',
        g,
        m,
        t,
    ] = text
    else {
        return None;
    };
    if ![*g, *m, *t].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    short_day_name(text)?;
    let year = number(&[*y1, *y2, *y3, *y4], 4, 4)?;
    seconds((year, month([*m1, *m2, *m3])?, number(&[*d1, *d2], 2, 2)?), time_of_day(time)?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`.
fn parse_rfc850(text: &[u8]) -> Option<i64> {
    const LONG: [&[u8]; 7] =
        [b"Thursday", b"Friday", b"Saturday", b"Sunday", b"Monday", b"Tuesday", b"Wednesday"];
    let (day_name, rest) = text.split_at_checked(text.iter().position(|&byte| byte == b',')?)?;
    LONG.into_iter().find(|long| day_name.eq_ignore_ascii_case(long))?;
    let [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', time @ .., b' ', g, m, t] = rest
    else {
        return None;
    };
    if ![*g, *m, *t].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let year = full_year(number(&[*y1, *y2], 2, 2)?);
    seconds((year, month([*m1, *m2, *m3])?, number(&[*d1, *d2], 2, 2)?), time_of_day(time)?)
}

/// `Sun Nov  6 08:49:37 1994`.
fn parse_asctime(text: &[u8]) -> Option<i64> {
    let [_, _, _, b' ', m1, m2, m3, b' ', d1, d2, b' ', rest @ ..] = text else { return None };
    let [time @ .., b' ', y1, y2, y3, y4] = rest else { return None };
    short_day_name(text)?;
    let year = number(&[*y1, *y2, *y3, *y4], 4, 4)?;
    let day = if *d1 == b' ' { number(&[*d2], 1, 1)? } else { number(&[*d1, *d2], 2, 2)? };
    seconds((year, month([*m1, *m2, *m3])?, day), time_of_day(time)?)
}

fn short_day_name(text: &[u8]) -> Option<usize> {
    find_name(DAYS, *text.first_chunk()?)
}

/// 1 to 12.
fn month(word: [u8; 3]) -> Option<i64> {
    find_name(MONTHS, word).map(|at| at as i64 + 1)
}

/// Which of `names`, of three letters each, `word` is in any case.
fn find_name(names: &[u8], word: [u8; 3]) -> Option<usize> {
    // Setting this bit makes letters of letters only.
    let folded = |[a, b, c]: [u8; 3]| u32::from_le_bytes([a | 0x20, b | 0x20, c | 0x20, 0]);
    let wanted = folded(word);
    names.as_chunks::<3>().0.iter().position(|name| folded(*name) == wanted)
}

/// `HH:MM:SS` as seconds; 60 is allowed as a leap second.
fn time_of_day(word: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = word else { return None };
    let (hour, minute, second) =
        (number(&[*h1, *h2], 2, 2)?, number(&[*m1, *m2], 2, 2)?, number(&[*s1, *s2], 2, 2)?);
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// Digits only, between `min` and `max` of them.
fn number(word: &[u8], min: usize, max: usize) -> Option<i64> {
    if word.len() < min || word.len() > max {
        return None;
    }
    crate::syntax::parse_digits(word).and_then(|number| i64::try_from(number).ok())
}

fn full_year(two_digits: i64) -> i64 {
    if two_digits < 70 { 2000 + two_digits } else { 1900 + two_digits }
}

/// Unix seconds of a (year, month, day) and a second of that day; `None` when there is no such day.
fn seconds((year, month, day): (i64, i64, i64), second_of_day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=days_of_month)
        .contains(&day)
        .then(|| days_from_civil(year, month, day) * 86_400 + second_of_day)
}

/// Writes two digits at `at`.
fn two_digits(out: &mut [u8; DATE_BYTES], at: usize, number: i64) {
    let (tens, ones) = ((number / 10 % 10) as u8, (number % 10) as u8);
    for (place, digit) in out.iter_mut().skip(at).zip([tens, ones]) {
        *place = b'0' + digit;
    }
}

/// Writes the three letters of entry `index` of `names` at `at`.
fn copy_name(out: &mut [u8; DATE_BYTES], at: usize, names: &[u8], index: i64) {
    let name = names.chunks_exact(3).nth(usize::try_from(index).unwrap_or(0)).unwrap_or_default();
    for (place, letter) in out.iter_mut().skip(at).zip(name) {
        *place = *letter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "SUN, 06 nov 1994 08:49:37 gMT",
            "sunday, 06-NOV-94 08:49:37 gmt",
            "sun nov 06 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(parse(b"Thursday, 01-Jan-70 00:00:00 GMT"), Some(0));
        assert_eq!(parse(b"Fri, 31 Dec 1999 23:59:60 GMT"), Some(946_684_800));
        assert_eq!(parse(b"Mon, 01 Jan 1900 00:00:00 GMT"), Some(-2_208_988_800));
    }

    #[test]
    fn what_was_read_before_changes_nothing() {
        let dates: [(&[u8], Option<i64>); 5] = [
            (b"Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            (b"Sun, 06 Nov 1994 08:49:38 GMT", Some(784_111_778)),
            (b"Sun, 06 Nov 1994 24:00:00 GMT", None),
            (&[0; DATE_BYTES], None),
            (b"Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
        ];
        for first in dates {
            for second in dates {
                for third in [first, second, first, second] {
                    assert_eq!(parse(third.0), third.1, "{:?}", third.0.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn malformed_dates() {
        for text in [
            "",
            "0",
            "-1",
            "now",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 31 Feb 2000 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94444 08:49:37 GMT",
            "Sun Nov  6 08:49:37 94",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn writing_and_reading_agree() {
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(i64::MIN), b"Mon, 01 Jan 0001 00:00:00 GMT");
        assert_eq!(&format(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        let mut time = *WRITABLE_S.start();
        while WRITABLE_S.contains(&time) {
            assert_eq!(parse(&format(time)), Some(time));
            time += 86_400 * 13 + 3_661;
        }
    }
}
