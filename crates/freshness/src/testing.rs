//! Heads for the tests of this crate.

use humboldt_http::{Fields, RequestHead, ResponseHead, Version, date};

use crate::{CacheControl, RefreshRule, Settings, Times, times};

/// When the answers of the tests arrive; unix seconds.
pub(crate) const ARRIVAL: i64 = 1_700_000_000;

/// Reads `Name: value` lines separated by `|`. `@n` in a value is the date `n` seconds after
/// [`ARRIVAL`].
pub(crate) fn fields(text: &str, fields: &mut Fields) {
    for line in text.split('|').filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("name and value");
        let value = match value.trim().strip_prefix('@') {
            Some(offset) => {
                let mut written = [0; 29];
                date::write(ARRIVAL + offset.parse::<i64>().expect("an offset"), &mut written);
                String::from_utf8(written.to_vec()).expect("ASCII")
            }
            None => value.trim().to_string(),
        };
        fields.push_named(name.as_bytes(), value.as_bytes());
    }
}

pub(crate) fn request(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    fields(text, &mut head.fields);
    head
}

pub(crate) fn response(status: u16, text: &str) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.set_line(Version::Http11, status, b"");
    fields(text, &mut head.fields);
    head
}

/// The times of an answer that arrived at [`ARRIVAL`] without delay.
pub(crate) fn times_of(response: &ResponseHead, rule: &RefreshRule, settings: &Settings) -> Times {
    let cc = CacheControl::of_response(&response.fields, &settings.target_list);
    times(ARRIVAL, ARRIVAL, response, &cc, rule, settings)
}
