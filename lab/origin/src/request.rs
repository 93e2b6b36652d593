//! The content of a request, as far as an origin server needs it.

use humboldt_lab_wire::{RequestHead, parse_http_date};
use humboldt_lab_workload::{Workload, protocol};

/// The operations on objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    /// Anything else, CONNECT among it: a server is not a proxy.
    Other,
}

/// The fields that matter, found in one walk over the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a [u8],
    /// The laboratory's number of this request, if it comes from its robots.
    pub(crate) id: Option<u64>,
    pub(crate) expects_continue: bool,
    range: Option<&'a [u8]>,
    if_range: Option<&'a [u8]>,
    if_none_match: Option<&'a [u8]>,
    if_modified_since: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    pub(crate) fn read(head: &RequestHead<'a>) -> Self {
        let mut request = Self {
            method: method(head.method()),
            path: path(head.target()),
            id: None,
            expects_continue: false,
            range: None,
            if_range: None,
            if_none_match: None,
            if_modified_since: None,
        };
        for (name, value) in head.headers() {
            request.note(name, value);
        }
        request
    }

    #[inline]
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        match name.len() {
            5 if is("Range") => self.range = Some(value),
            6 if is("Expect") => {
                self.expects_continue = value.eq_ignore_ascii_case(b"100-continue")
            }
            8 if is("If-Range") => self.if_range = Some(value),
            11 if is(protocol::REQUEST_ID) => self.id = hex_id(value),
            13 if is("If-None-Match") => self.if_none_match = Some(value),
            17 if is("If-Modified-Since") => self.if_modified_since = Some(value),
            _ => {}
        }
    }

    /// Whether the client has this version already: by tag if it names tags, otherwise by date.
    pub(crate) fn has_version(&self, key: u64, number: u64, modified_s: u64) -> bool {
        if let Some(tags) = self.if_none_match {
            return tags == b"*"
                || tags.split(|byte| *byte == b',').any(|tag| is_version(tag, key, number));
        }
        self.if_modified_since.and_then(parse_http_date).is_some_and(|date_s| date_s >= modified_s)
    }

    /// The range, unless it was meant for another version.
    pub(crate) fn range_for(&self, key: u64, number: u64, modified_s: u64) -> Option<&'a [u8]> {
        let range = self.range?;
        let Some(condition) = self.if_range else { return Some(range) };
        let same_tag = condition.starts_with(b"\"") && is_version(condition, key, number);
        let same_date = parse_http_date(condition) == Some(modified_s);
        (same_tag || same_date).then_some(range)
    }
}

/// Whether a tag, weak or strong, is that of this version.
fn is_version(tag: &[u8], key: u64, number: u64) -> bool {
    let tag = tag.trim_ascii();
    Workload::parse_etag(tag.strip_prefix(b"W/").unwrap_or(tag)) == Some((key, number))
}

fn method(text: &[u8]) -> Method {
    match text {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"POST" => Method::Post,
        _ => Method::Other,
    }
}

/// The path of a target: caches may send whole URLs to a server, too.
fn path(target: &[u8]) -> &[u8] {
    let Some((scheme, rest)) = target.split_at_checked(7) else { return target };
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return target;
    }
    rest.iter().position(|byte| *byte == b'/').map_or(b"/", |slash| &rest[slash..])
}

/// 16 hex digits.
fn hex_id(text: &[u8]) -> Option<u64> {
    if text.len() != 16 {
        return None;
    }
    text.iter()
        .try_fold(0_u64, |sum, byte| Some((sum << 4) | u64::from(char::from(*byte).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_wire::{http_date, request_head};

    fn with_request(fields: &str, look: impl FnOnce(Request<'_>)) {
        let text = format!("GET http://a:1/l/1 HTTP/1.1\r\n{fields}\r\n");
        look(Request::read(&request_head(text.as_bytes()).unwrap().unwrap()));
    }

    #[test]
    fn targets_are_paths_or_whole_urls() {
        for (target, expected) in
            [("/a/b", "/a/b"), ("HTTP://h:8/a", "/a"), ("http://h", "/"), ("*", "*")]
        {
            assert_eq!(path(target.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn the_fields_that_matter_are_found() {
        with_request("lab-request: 00000000000000fF\r\nExpect: 100-Continue\r\n", |request| {
            assert_eq!((request.method, request.path), (Method::Get, &b"/l/1"[..]));
            assert_eq!((request.id, request.expects_continue), (Some(255), true));
        });
        with_request("Lab-Request: 12\r\n", |request| assert_eq!(request.id, None));
        with_request("Lab-Request: +123456789abcdef\r\n", |request| assert_eq!(request.id, None));
    }

    #[test]
    fn conditions_are_weighed_as_the_standard_says() {
        let mut date = Vec::new();
        http_date(1_000_000, &mut date);
        let date = String::from_utf8(date).unwrap();
        let tag = "\"00000000000000aa.7\"";
        let cases = [
            (format!("If-None-Match: {tag}\r\n"), true),
            (format!("If-None-Match: \"x\", W/{tag}\r\n"), true),
            ("If-None-Match: *\r\n".to_owned(), true),
            (
                format!("If-None-Match: \"00000000000000aa.6\"\r\nIf-Modified-Since: {date}\r\n"),
                false,
            ),
            (format!("If-Modified-Since: {date}\r\n"), true),
            ("If-Modified-Since: yesterday\r\n".to_owned(), false),
            (String::new(), false),
        ];
        for (fields, has) in cases {
            with_request(&fields, |request| {
                assert_eq!(request.has_version(0xaa, 7, 1_000_000), has, "{fields}")
            });
        }
        with_request(&format!("If-Modified-Since: {date}\r\n"), |request| {
            assert!(!request.has_version(0xaa, 7, 1_000_001), "modified since");
        });
        for (condition, applies) in
            [(tag, true), (&format!("W/{tag}"), false), (&date, true), ("\"x\"", false)]
        {
            with_request(&format!("Range: bytes=1-2\r\nIf-Range: {condition}\r\n"), |request| {
                assert_eq!(request.range_for(0xaa, 7, 1_000_000).is_some(), applies, "{condition}");
            });
        }
    }
}
