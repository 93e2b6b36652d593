//! Dates in heads: `Sun, 06 Nov 1994 08:49:37 GMT`.

/// Length of a date, in bytes: it is always the same.
pub const HTTP_DATE_BYTES: usize = 29;

const DAY_S: u64 = 86_400;
/// The last second of the year 9999: later ones have no such date.
const LAST_S: u64 = 253_402_300_799;
const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Appends the date of a moment in Unix seconds. After the year 9999 it is the last second of that
/// year.
pub fn http_date(unix_s: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&date_text(unix_s));
}

fn date_text(unix_s: u64) -> [u8; HTTP_DATE_BYTES] {
    let unix_s = unix_s.min(LAST_S);
    let (days, second) = (unix_s / DAY_S, unix_s % DAY_S);
    let (year, month, day) = civil_from_days(days);
    let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    text[..3].copy_from_slice(DAYS[(days % 7) as usize]);
    put_two(&mut text, 5, day);
    text[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
    put_two(&mut text, 12, year / 100);
    put_two(&mut text, 14, year % 100);
    put_two(&mut text, 17, second / 3600);
    put_two(&mut text, 20, second / 60 % 60);
    put_two(&mut text, 23, second % 60);
    text
}

/// The moment of a date in Unix seconds. Only this one form is read, not the two that have been
/// obsolete since 1997, and only days that exist; the weekday must be right.
#[must_use]
pub fn parse_http_date(text: &[u8]) -> Option<u64> {
    let text: &[u8; HTTP_DATE_BYTES] = text.try_into().ok()?;
    let (day, year) = (two(text, 5)?, two(text, 12)? * 100 + two(text, 14)?);
    let month = MONTHS.iter().position(|month| text[8..11] == month[..])? as u64 + 1;
    let (hour, minute, second) = (two(text, 17)?, two(text, 20)?, two(text, 23)?);
    if year < 1970 || day == 0 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let unix_s = days_from_civil(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
    // Writing it again is the shortest check of separators, weekday and days like 31 February.
    (date_text(unix_s) == *text).then_some(unix_s)
}

fn put_two(text: &mut [u8; HTTP_DATE_BYTES], at: usize, number: u64) {
    text[at] = b'0' + (number / 10 % 10) as u8;
    text[at + 1] = b'0' + (number % 10) as u8;
}

fn two(text: &[u8; HTTP_DATE_BYTES], at: usize) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    Some(digit(text[at])? * 10 + digit(text[at + 1])?)
}

/// Year, month and day of a day since 1970. Years begin in March here, so that a leap day is the
/// last of its year; 400 such years have 146,097 days.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let since_year_0 = days + 719_468;
    let (era, day_of_era) = (since_year_0 / 146_097, since_year_0 % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The inverse, for years from 1970.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).saturating_sub(719_468)
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
        for day in (0..LAST_S / DAY_S).step_by(13) {
            let unix_s = day * DAY_S + day % DAY_S;
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
