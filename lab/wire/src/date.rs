//! Dates in heads: `Sun, 06 Nov 1994 08:49:37 GMT`.

use httpdate::HttpDate;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Length of a date, in bytes: it is always the same.
pub const HTTP_DATE_BYTES: usize = 29;

/// The last second of the year 9999: later ones have no such date.
const LAST_S: u64 = 253_402_300_799;

/// Appends the date of a moment in Unix seconds. After the year 9999 it is the last second of that
/// year.
pub fn http_date(unix_s: u64, out: &mut Vec<u8>) {
    let time = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S));
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{}", HttpDate::from(time));
}

/// The moment of a date in Unix seconds. Only this one form is read, not the two that have been
/// obsolete since 1997, and only days that exist; the weekday must be right.
#[must_use]
pub fn parse_http_date(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    let unix_s = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    // Only the one form comes out again as it went in.
    let mut again = Vec::with_capacity(HTTP_DATE_BYTES);
    http_date(unix_s, &mut again);
    (again == text).then_some(unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(unix_s: u64) -> String {
        let mut out = Vec::new();
        http_date(unix_s, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_moments_are_written() {
        assert_eq!(written(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(written(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
        assert_eq!(written(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn every_day_reads_back() {
        for day in (0..LAST_S / 86_400).step_by(13) {
            let unix_s = day * 86_400 + day % 86_400;
            assert_eq!(
                parse_http_date(written(unix_s).as_bytes()),
                Some(unix_s),
                "{}",
                written(unix_s)
            );
        }
    }

    #[test]
    fn what_is_not_a_date_is_refused() {
        let wrong = [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Thu, 31 Feb 2000 00:00:00 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "0",
            "",
        ];
        for text in wrong {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
    }
}
