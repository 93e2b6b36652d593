//! Lines of `time,key,size`.

use super::trace::{Parsed, Request, clamped, id_of};

const EXPECTED: &str = "time,key,size";

/// `is_first`: names instead of numbers are no mistake.
pub(super) fn parse(line: &[u8], is_first: bool) -> Result<Parsed, &'static str> {
    match fields(line) {
        Some(request) => Ok(Parsed::Request(request)),
        None if is_first && is_of_names(line) => Ok(Parsed::LeftOut),
        None => Err(EXPECTED),
    }
}

fn fields(line: &[u8]) -> Option<Request> {
    let mut fields = line.split(|byte| *byte == b',').map(|field| field.trim_ascii());
    let time: f64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let key = fields.next().filter(|key| !key.is_empty())?;
    let bytes: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    time.is_finite().then(|| Request { id: id_of(key), bytes: clamped(bytes) })
}

fn is_of_names(line: &[u8]) -> bool {
    let fields = line.split(|byte| *byte == b',');
    fields.clone().count() >= 3
        && fields
            .into_iter()
            .all(|field| !field.trim_ascii().first().is_some_and(u8::is_ascii_digit))
}
