//! Lines of Squid's native access.log: time, elapsed, client, code/status, bytes, method, URL, and
//! more.

use super::trace::{Parsed, Request, clamped, id_of};

/// Statuses that a cache may store without being told so (RFC 9110, 15.1), as far as they have
/// bodies.
const CACHABLE_STATUSES: [&[u8]; 7] = [b"200", b"203", b"300", b"301", b"308", b"404", b"410"];

const EXPECTED: &str = "a line of Squid's native access.log";

pub(super) fn parse(line: &[u8]) -> Result<Parsed, &'static str> {
    fields(line).ok_or(EXPECTED)
}

fn fields(line: &[u8]) -> Option<Parsed> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    // The time is not used, but a line that does not begin with one is no line of such a log.
    number::<f64>(words.next()?)?;
    number::<i64>(words.next()?)?;
    words.next()?;
    let result = words.next()?;
    let slash = result.iter().position(|byte| *byte == b'/')?;
    let (code, status) = (result.get(..slash)?, result.get(slash + 1..)?);
    number::<u16>(status)?;
    let bytes = number::<u64>(words.next()?)?;
    let (method, url) = (words.next()?, words.next()?);
    let is_denied = code.windows(6).any(|part| part == b"DENIED");
    if method != b"GET" || is_denied || !CACHABLE_STATUSES.contains(&status) {
        return Some(Parsed::LeftOut);
    }
    Some(Parsed::Request(Request { id: id_of(url), bytes: clamped(bytes) }))
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
