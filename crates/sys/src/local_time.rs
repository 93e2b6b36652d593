//! The local time zone, for log lines.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets change only at multiples of this, in seconds.
const QUARTER_HOUR_S: i64 = 15 * 60;

/// The quarter hour last asked for and its offset: `quarter << 32 | offset as u32`; 0 when unset.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Seconds east of UTC of local time at `unix_s` (`TZ`, `/etc/localtime`). A time the C library
/// cannot handle counts as UTC. Cheap when asked for the same quarter of an hour again.
pub fn utc_offset_s(unix_s: i64) -> i32 {
    let quarter = unix_s.div_euclid(QUARTER_HOUR_S) as u32;
    let last = LAST.load(Ordering::Relaxed);
    if last != 0 && (last >> 32) as u32 == quarter {
        return last as u32 as i32;
    }
    let offset = ask_system(unix_s);
    LAST.store(u64::from(quarter) << 32 | u64::from(offset as u32), Ordering::Relaxed);
    offset
}

#[allow(unsafe_code)]
fn ask_system(unix_s: i64) -> i32 {
    static READ_ZONE: Once = Once::new();
    // SAFETY: reads the environment; this program never changes it while threads run.
    READ_ZONE.call_once(|| unsafe { tzset() });
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live locals of the right type; an all-zero `tm` is valid.
    let found = unsafe { libc::localtime_r(&unix_s, broken_down.as_mut_ptr()) };
    if found.is_null() {
        return 0;
    }
    // SAFETY: initialised: zeroed, then filled in by localtime_r.
    i32::try_from(unsafe { broken_down.assume_init() }.tm_gmtoff).unwrap_or(0)
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// POSIX tzset(3), which the `libc` crate does not declare for Linux.
    fn tzset();
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Run by the test below in processes of their own, with `TZ` set.
    #[test]
    fn child_prints_offsets() {
        if let Ok(times) = std::env::var("HUMBOLDT_TEST_TIMES") {
            let offsets =
                times.split(',').map(|t| utc_offset_s(t.parse().expect("a time")).to_string());
            println!("offsets={}", offsets.collect::<Vec<_>>().join(","));
        }
    }

    #[test]
    fn follows_the_zone_and_its_summer_time() {
        // Rules written out, so that no time zone files are needed: January, July, January again.
        let run = |zone: &str| {
            let output = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "local_time::tests::child_prints_offsets", "--nocapture"])
                .env("TZ", zone)
                .env("HUMBOLDT_TEST_TIMES", "1705312800,1721037600,1705312801,4102444800")
                .output()
                .expect("run");
            let text = String::from_utf8(output.stdout).expect("text");
            let offsets = text.split("offsets=").nth(1).expect("offsets");
            offsets.lines().next().expect("a line").to_owned()
        };
        assert_eq!(run("CET-1CEST,M3.5.0,M10.5.0/3"), "3600,7200,3600,3600");
        assert_eq!(run("NST3:30"), "-12600,-12600,-12600,-12600");
        assert_eq!(run("UTC0"), "0,0,0,0");
    }
}
