//! The `time` ACL: days of the week and hours, in local time.

use crate::error::AclProblem;

const DAY_S: i64 = 24 * 3600;
const DAY_MINUTES: u16 = 24 * 60;
/// 1 January 1970 was a Thursday; Sunday is 0.
const EPOCH_WEEKDAY: i64 = 4;
const EVERY_DAY: u8 = 0x7f;

/// Windows of time, one of which must be open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule(Vec<Window>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// Bit 0 is Sunday.
    days: u8,
    /// Minutes since midnight; the last minute belongs to the window, as in Squid.
    first: u16,
    last: u16,
}

impl Schedule {
    /// Compiles lines of words like `MTWHF` (or each day by itself) and `08:00-17:30`. Days hold
    /// for the hours that follow them on their line; days without hours are whole days.
    pub(crate) fn compile(lines: &[String]) -> Result<Self, AclProblem> {
        let mut windows = Vec::new();
        for line in lines {
            compile_line(line, &mut windows)?;
        }
        Ok(Self(windows))
    }

    /// Whether a window is open at `now` (unix seconds), where local time is `offset_s` ahead of
    /// UTC.
    pub(crate) fn is_open(&self, now: i64, offset_s: i32) -> bool {
        let local = now.saturating_add(i64::from(offset_s));
        let today = 1_u8 << (local.div_euclid(DAY_S) + EPOCH_WEEKDAY).rem_euclid(7);
        let minute = local.rem_euclid(DAY_S) / 60;
        self.0.iter().any(|window| {
            window.days & today != 0
                && (i64::from(window.first)..=i64::from(window.last)).contains(&minute)
        })
    }
}

/// The windows of one line of words.
fn compile_line(line: &str, windows: &mut Vec<Window>) -> Result<(), AclProblem> {
    let mut days = 0;
    for word in line.split_ascii_whitespace() {
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            let (first, last) = parse_hours(word).ok_or_else(|| AclProblem::Value {
                value: word.to_owned(),
                expected: "hours such as 08:00-17:30",
            })?;
            windows.push(Window { days: if days == 0 { EVERY_DAY } else { days }, first, last });
            days = 0;
        } else {
            days |= parse_days(word).ok_or_else(|| AclProblem::Value {
                value: word.to_owned(),
                expected: "days out of SMTWHFA (or D for Monday to Friday)",
            })?;
        }
    }
    if days != 0 {
        windows.push(Window { days, first: 0, last: DAY_MINUTES });
    }
    Ok(())
}

fn parse_days(text: &str) -> Option<u8> {
    text.bytes().try_fold(0, |days, letter| {
        Some(
            days | match letter {
                b'S' => 1,
                b'M' => 1 << 1,
                b'T' => 1 << 2,
                b'W' => 1 << 3,
                b'H' => 1 << 4,
                b'F' => 1 << 5,
                b'A' => 1 << 6,
                b'D' => 0b0011_1110,
                b'-' => 0,
                _ => return None,
            },
        )
    })
}

fn parse_hours(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (parse_minute(first)?, parse_minute(last)?);
    (first <= last && first < DAY_MINUTES).then_some((first, last))
}

/// `h:mm` in minutes since midnight, up to 24:00.
fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let total = hour.checked_mul(60)?.checked_add(minute)?;
    (minute < 60 && total <= DAY_MINUTES).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 3 January 2000, 00:00 UTC.
    const MONDAY: i64 = 946_857_600;

    fn schedule(text: &str) -> Result<Schedule, AclProblem> {
        Schedule::compile(&text.split('/').map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn windows() {
        let rows = [
            ("MTWHF 06:00-15:00", 0, 6, 0, true),
            ("MTWHF 06:00-15:00", 0, 15, 0, true),
            ("MTWHF 06:00-15:00", 0, 15, 1, false),
            ("MTWHF 06:00-15:00", 0, 5, 59, false),
            ("MTWHF 06:00-15:00", 5, 12, 0, false),
            ("D", 4, 23, 59, true),
            ("D", 5, 0, 0, false),
            ("SA", 5, 12, 0, true),
            ("SA", 6, 12, 0, true),
            ("S", 5, 12, 0, false),
            ("M T W H F", 3, 1, 1, true),
            ("8:00-16:00", 6, 8, 0, true),
            ("21:30-23:59 00:00-06:00", 2, 23, 59, true),
            ("21:30-23:59 00:00-06:00", 2, 3, 0, true),
            ("21:30-23:59 00:00-06:00", 2, 12, 0, false),
            ("M 10:00-11:00 12:00-24:00", 1, 10, 30, false),
            ("M 10:00-11:00 12:00-24:00", 1, 12, 30, true),
            ("A/10:00-11:00", 5, 20, 0, true),
            ("A/10:00-11:00", 0, 10, 30, true),
            ("A/10:00-11:00", 0, 20, 0, false),
            ("A 10:00-11:00", 0, 10, 30, false),
        ];
        for (text, day, hour, minute, open) in rows {
            let now = MONDAY + day * DAY_S + hour * 3600 + minute * 60;
            assert_eq!(
                schedule(text).unwrap().is_open(now, 0),
                open,
                "{text} {day} {hour}:{minute}"
            );
        }
    }

    #[test]
    fn local_time_and_extreme_clocks() {
        let monday = schedule("M").unwrap();
        assert!(monday.is_open(MONDAY - 1, 3600) && !monday.is_open(MONDAY - 1, 0));
        assert!(!monday.is_open(MONDAY, -3600));
        for now in [i64::MIN, -1, i64::MAX] {
            assert!(schedule("SMTWHFA").unwrap().is_open(now, 0));
        }
    }

    #[test]
    fn refused() {
        for bad in [
            "X",
            "MTX",
            "25:00-26:00",
            "8:00",
            "9:00-8:00",
            "8:60-9:00",
            "24:00-24:00",
            "8-9",
            "999999:0-1:0",
        ] {
            assert!(schedule(bad).is_err(), "{bad}");
        }
    }
}
