//! Conditional requests (RFC 9110 13).

use crate::date;
use crate::etag;
use crate::fields::Fields;
use crate::method::Method;
use crate::name::FieldName;

/// The validators of a selected representation.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Validators<'a> {
    /// The `ETag` value.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified` in unix seconds.
    pub last_modified: Option<i64>,
}

/// The result of a request's conditions for the representation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Answer as if there were no conditions.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    PreconditionFailed,
}

/// Evaluates all preconditions but `If-Range` in the order of RFC 9110 13.2.2, for a representation
/// that exists. `If-Match` and `If-Unmodified-Since` are the origin server's to judge (RFC 9111
/// 4.3.2): a cache that cannot proceed with them forwards the request instead of answering 412.
#[must_use]
pub fn evaluate(method: Method, fields: &Fields, validators: Validators<'_>) -> Outcome {
    if fields.has(FieldName::IfMatch) {
        if !matches_any(fields, FieldName::IfMatch, validators.etag, etag::strong_eq) {
            return Outcome::PreconditionFailed;
        }
    } else if let Some(since) = fields.get(FieldName::IfUnmodifiedSince).and_then(date::parse)
        && validators.last_modified.is_some_and(|modified| modified > since)
    {
        return Outcome::PreconditionFailed;
    }
    let is_read = matches!(method, Method::Get | Method::Head);
    if fields.has(FieldName::IfNoneMatch) {
        if matches_any(fields, FieldName::IfNoneMatch, validators.etag, etag::weak_eq) {
            return if is_read { Outcome::NotModified } else { Outcome::PreconditionFailed };
        }
    } else if is_read
        && let Some(since) = fields.get(FieldName::IfModifiedSince).and_then(date::parse)
        && validators.last_modified.is_some_and(|modified| modified <= since)
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Whether the `Range` field applies (RFC 9110 13.1.5): there is no `If-Range`, or it names this
/// representation, by a strong tag or by the exact date. `date` is the answer's `Date` in unix
/// seconds: a modification date is a strong validator only when it is at least a minute older (RFC
/// 9110 8.8.2.2).
#[must_use]
pub fn range_applies(fields: &Fields, validators: Validators<'_>, date: i64) -> bool {
    let Some(value) = fields.get(FieldName::IfRange) else { return true };
    if fields.is_repeated(FieldName::IfRange) {
        return false;
    }
    if let Some(wanted) = date::parse(value) {
        let is_strong = |modified: i64| date.saturating_sub(modified) >= 60;
        return validators
            .last_modified
            .is_some_and(|modified| modified == wanted && is_strong(modified));
    }
    validators.etag.is_some_and(|tag| etag::strong_eq(tag, value))
}

/// Whether any listed tag equals the representation's. `*` means any representation, and there is
/// one.
fn matches_any(
    fields: &Fields,
    name: FieldName,
    tag: Option<&[u8]>,
    equal: fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields
        .get_all(name)
        .flat_map(etag::list)
        .any(|listed| listed == b"*" || tag.is_some_and(|tag| equal(tag, listed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const T0_S: i64 = 784_111_777;

    fn fields(lines: &[(FieldName, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(*name, value.as_bytes());
        }
        fields
    }

    fn outcome(
        method: Method,
        lines: &[(FieldName, &str)],
        etag: &str,
        last_modified: i64,
    ) -> Outcome {
        let validators =
            Validators { etag: Some(etag.as_bytes()), last_modified: Some(last_modified) };
        evaluate(method, &fields(lines), validators)
    }

    #[test]
    fn if_none_match_and_if_modified_since() {
        use FieldName::{IfModifiedSince, IfNoneMatch};
        let get = |lines: &[_], modified| outcome(Method::Get, lines, "\"a\"", modified);
        assert_eq!(get(&[(IfNoneMatch, "\"b\", W/\"a\"")], 0), Outcome::NotModified);
        assert_eq!(get(&[(IfNoneMatch, "*")], 0), Outcome::NotModified);
        assert_eq!(get(&[(IfNoneMatch, "\"b\""), (IfModifiedSince, T0)], 0), Outcome::Proceed);
        assert_eq!(get(&[(IfModifiedSince, T0)], T0_S), Outcome::NotModified);
        assert_eq!(get(&[(IfModifiedSince, T0)], T0_S + 1), Outcome::Proceed);
        assert_eq!(get(&[(IfModifiedSince, "yesterday")], 0), Outcome::Proceed);
        let post = outcome(Method::Post, &[(IfNoneMatch, "\"a\"")], "\"a\"", 0);
        assert_eq!(post, Outcome::PreconditionFailed);
        assert_eq!(outcome(Method::Post, &[(IfModifiedSince, T0)], "\"a\"", 0), Outcome::Proceed);
    }

    #[test]
    fn if_match_and_if_unmodified_since() {
        use FieldName::{IfMatch, IfUnmodifiedSince};
        let get = |lines: &[_], etag, modified| outcome(Method::Get, lines, etag, modified);
        assert_eq!(get(&[(IfMatch, "\"a\"")], "\"a\"", 0), Outcome::Proceed);
        assert_eq!(get(&[(IfMatch, "\"a\"")], "W/\"a\"", 0), Outcome::PreconditionFailed);
        assert_eq!(
            get(&[(IfMatch, "\"a\""), (IfUnmodifiedSince, T0)], "\"a\"", T0_S + 1),
            Outcome::Proceed
        );
        assert_eq!(get(&[(IfUnmodifiedSince, T0)], "\"a\"", T0_S), Outcome::Proceed);
        assert_eq!(get(&[(IfUnmodifiedSince, T0)], "\"a\"", T0_S + 1), Outcome::PreconditionFailed);
    }

    #[test]
    fn if_range() {
        let applies = |value: &str, etag: &str, date| {
            let validators = Validators { etag: Some(etag.as_bytes()), last_modified: Some(T0_S) };
            range_applies(&fields(&[(FieldName::IfRange, value)]), validators, date)
        };
        assert!(applies("\"a\"", "\"a\"", 0));
        assert!(!applies("W/\"a\"", "W/\"a\"", 0) && !applies("\"b\"", "\"a\"", 0));
        assert!(applies(T0, "\"a\"", T0_S + 60) && !applies(T0, "\"a\"", T0_S + 59));
        assert!(!applies("Sun, 06 Nov 1994 08:49:38 GMT", "\"a\"", T0_S + 100));
        assert!(range_applies(&Fields::new(), Validators::default(), 0));
    }
}
