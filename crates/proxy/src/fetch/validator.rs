//! Strong validators: they tell whether two answers are the same to the last byte.

use humboldt_http::{FieldName, ResponseHead};

/// The field that tells whether two answers are the same to the last byte: a strong entity tag, or
/// a Last-Modified at least a minute before the answer's date (RFC 9110 8.8.2.2).
pub(crate) fn strong_validator(head: &ResponseHead) -> Option<FieldName> {
    if let Some(tag) = head.fields.get(FieldName::Etag) {
        return (!tag.starts_with(b"W/")).then_some(FieldName::Etag);
    }
    let time = |name| head.fields.get(name).and_then(humboldt_http::date::parse);
    let (modified, sent) = (time(FieldName::LastModified)?, time(FieldName::Date)?);
    (sent.saturating_sub(modified) >= 60).then_some(FieldName::LastModified)
}

/// A strong validator: answers that share it are the same to the last byte.
pub(crate) struct Validator {
    name: FieldName,
    /// The value of the field.
    pub value: Vec<u8>,
}

impl Validator {
    /// Whether this answer has the same validator.
    pub(crate) fn is_of(&self, head: &ResponseHead) -> bool {
        strong_validator(head) == Some(self.name) && head.fields.get(self.name) == Some(&self.value)
    }
}

/// The strong validator of an answer, if it has one.
pub(crate) fn validator(head: &ResponseHead) -> Option<Validator> {
    let name = strong_validator(head)?;
    Some(Validator { name, value: head.fields.get(name)?.to_vec() })
}
