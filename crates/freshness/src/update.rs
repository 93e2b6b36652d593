//! After a validation, and after an unsafe method (RFC 9111 sections 3.2, 4.3.4 and 4.4).

use humboldt_http::{FieldName, Fields, HopByHop, Method, ResponseHead, etag};

/// Whether a 304 confirms the stored answer rather than another one: its validators, if any, must
/// match (RFC 9111 section 4.3.4). If not, fetch again without conditions.
pub fn freshens(stored: &ResponseHead, not_modified: &ResponseHead) -> bool {
    let (old, new) = (&stored.fields, &not_modified.fields);
    match (old.get(FieldName::Etag), new.get(FieldName::Etag)) {
        (Some(old_tag), Some(new_tag)) => etag::weak_eq(old_tag, new_tag),
        (None, Some(_)) => false,
        (_, None) => match (old.get(FieldName::LastModified), new.get(FieldName::LastModified)) {
            (Some(old_time), Some(new_time)) => old_time == new_time,
            _ => true,
        },
    }
}

/// The stored head brought up to date with a 304 (RFC 9111 section 3.2). Status and reason stay;
/// fields of the 304 replace those of the same name, except those that describe the connection or
/// the stored body. Age is only there if the 304 had one, Date likewise, so that [`crate::times`]
/// reckons from the validation.
pub fn update_304(stored: &ResponseHead, not_modified: &ResponseHead) -> ResponseHead {
    let mut updated = stored.clone();
    updated.fields.remove(FieldName::Age);
    updated.fields.remove(FieldName::Date);
    let hop_by_hop = HopByHop::of(&not_modified.fields);
    let taken =
        |name: FieldName, text: &[u8]| !describes_body(name) && !hop_by_hop.is_hop(name, text);
    for (name, text, _) in not_modified.fields.iter().filter(|(name, text, _)| taken(*name, text)) {
        remove(&mut updated.fields, name, text);
    }
    for (_, text, value) in not_modified.fields.iter().filter(|(name, text, _)| taken(*name, text))
    {
        updated.fields.push_named(text, value);
    }
    updated
}

/// Whether the stored answers of a URL are void after this method was answered with this status: an
/// unsafe method that did not fail (RFC 9111 section 4.4). PURGE is a method of the cache itself
/// and not included.
pub fn invalidates(method: Method, status: u16) -> bool {
    let unsafe_method = match method {
        Method::Get
        | Method::Head
        | Method::Options
        | Method::Trace
        | Method::Connect
        | Method::Purge => false,
        Method::Post | Method::Put | Method::Delete | Method::Patch | Method::Other => true,
    };
    unsafe_method && (200..=399).contains(&status)
}

/// Fields that belong to the stored bytes: a 304 does not change those.
fn describes_body(name: FieldName) -> bool {
    matches!(name, FieldName::ContentLength | FieldName::ContentEncoding | FieldName::ContentRange)
}

fn remove(fields: &mut Fields, name: FieldName, text: &[u8]) {
    match name {
        FieldName::Other => fields.remove_by_name(text),
        known => fields.remove(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::response;

    fn text(head: &ResponseHead) -> Vec<String> {
        let line = |name: &[u8], value: &[u8]| {
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        head.fields.iter().map(|(_, name, value)| line(name, value)).collect()
    }

    #[test]
    fn a_304_replaces_fields_but_not_what_describes_the_body() {
        let stored = response(
            200,
            "Date: @-100|Age: 50|Content-Length: 5|Content-Type: text/html|ETag: \"a\"|X-A: 1|X-A: 2|X-B: 3",
        );
        let fresh = response(
            304,
            "Date: @0|Content-Length: 0|content-encoding: gzip|Connection: x-hop|X-Hop: 1|x-a: 9|X-C: 4|X-C: 5|\
             Transfer-Encoding: chunked|Cache-Control: max-age=5",
        );
        let updated = update_304(&stored, &fresh);
        assert_eq!(updated.status, 200);
        let lines = text(&updated);
        let expected = [
            "Content-Length: 5",
            "Content-Type: text/html",
            "ETag: \"a\"",
            "X-B: 3",
            "Date: Tue, 14 Nov 2023 22:13:20 GMT",
            "x-a: 9",
            "X-C: 4",
            "X-C: 5",
            "Cache-Control: max-age=5",
        ];
        assert_eq!(lines, expected);
        let without_date = update_304(&stored, &response(304, "ETag: \"a\""));
        assert!(
            !without_date.fields.has(FieldName::Date) && !without_date.fields.has(FieldName::Age)
        );
    }

    #[test]
    fn validators_must_agree() {
        let rows = [
            ("ETag: \"a\"", "ETag: \"a\"", true),
            ("ETag: \"a\"", "ETag: W/\"a\"", true),
            ("ETag: W/\"a\"", "ETag: \"a\"", true),
            ("ETag: \"a\"", "ETag: \"b\"", false),
            ("ETag: \"a\"", "", true),
            ("", "ETag: \"b\"", false),
            ("", "", true),
            ("Last-Modified: @-5", "Last-Modified: @-5", true),
            ("Last-Modified: @-5", "Last-Modified: @-4", false),
            ("Last-Modified: @-5", "", true),
            ("ETag: \"a\"|Last-Modified: @-5", "ETag: \"a\"|Last-Modified: @-4", true),
        ];
        for (stored, fresh, want) in rows {
            assert_eq!(
                freshens(&response(200, stored), &response(304, fresh)),
                want,
                "{stored} / {fresh}"
            );
        }
    }

    #[test]
    fn unsafe_methods_that_succeed_invalidate() {
        for method in [Method::Post, Method::Put, Method::Delete, Method::Patch, Method::Other] {
            assert!(
                invalidates(method, 200) && invalidates(method, 204) && invalidates(method, 303)
            );
            assert!(
                !invalidates(method, 404) && !invalidates(method, 500) && !invalidates(method, 100)
            );
        }
        for method in [Method::Get, Method::Head, Method::Options, Method::Trace, Method::Connect] {
            assert!(!invalidates(method, 200));
        }
    }
}
