//! Request and response heads: start line and fields in one reusable buffer.

use humboldt_base::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX, TARGET_BYTES_MAX};

use crate::fields::{FIELDS_BYTES_MAX, Fields, Span};
use crate::method::{Method, Version};
use crate::uri::Places;

/// Bounds for one head, whatever the version of HTTP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HeadLimits {
    /// Longest head in bytes, start line and final empty line included; beyond it 431.
    pub max_head_bytes: usize,
    /// Most field lines, at most [`HEAD_FIELDS_LIMIT`](crate::h1::HEAD_FIELDS_LIMIT); beyond it 431
    /// to a client, 502 for a server.
    pub max_fields: usize,
    /// Longest request target in bytes; beyond it 414.
    pub max_target_bytes: usize,
    /// Whether bare LF and folded lines of answers are accepted if they leave no doubt about the
    /// framing. Requests are always read strictly.
    pub relaxed: bool,
    /// The treatment of white space in a request target.
    pub whitespace: TargetWhitespace,
}

/// The treatment of blanks and tabs in a request target.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum TargetWhitespace {
    /// The request is refused.
    #[default]
    Refused,
    /// They are left out.
    Removed,
    /// They are percent-encoded.
    Encoded,
    /// The target ends before the first one.
    CutOff,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            max_head_bytes: HEAD_BYTES_MAX,
            max_fields: HEAD_FIELDS_MAX,
            max_target_bytes: TARGET_BYTES_MAX,
            relaxed: false,
            whitespace: TargetWhitespace::Refused,
        }
    }
}

/// Form of a request target (RFC 9112 3.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// `/path?query`
    #[default]
    Origin,
    /// `scheme://authority/path?query`
    Absolute,
    /// `host:port`, for CONNECT only
    Authority,
    /// `*`, for OPTIONS only
    Asterisk,
}

/// A request head. Its bytes, start line included, are in the buffer of `fields`.
#[derive(Clone, Default, Debug)]
pub struct RequestHead {
    /// The method, if known.
    pub method: Method,
    /// The method's text.
    pub method_span: Span,
    /// The request target as received.
    pub target_span: Span,
    /// The version in the request line.
    pub version: Version,
    /// The form of the target.
    pub target: Target,
    /// The parts of an absolute target that has been read.
    pub(crate) places: Option<Places>,
    /// The field lines.
    pub fields: Fields,
}

impl RequestHead {
    /// The method's text.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        self.method_span.of(&self.fields.bytes)
    }

    /// The request target as received.
    #[must_use]
    pub fn target_bytes(&self) -> &[u8] {
        self.target_span.of(&self.fields.bytes)
    }

    /// Sets the request line, as when a request is built rather than parsed. `method` and `target`
    /// must come from a parsed request or be valid; text beyond [`FIELDS_BYTES_MAX`] is left out.
    pub fn set_line(&mut self, method: &[u8], target: &[u8], form: Target, version: Version) {
        self.method = Method::from_bytes(method);
        self.method_span = append(&mut self.fields, method);
        self.target_span = append(&mut self.fields, target);
        (self.target, self.places) = (form, None);
        self.version = version;
    }

    /// Empties the head and keeps its capacity.
    pub fn clear(&mut self) {
        self.fields.clear();
        let fields = std::mem::take(&mut self.fields);
        *self = RequestHead { fields, ..RequestHead::default() };
    }
}

/// A response head. Its bytes, status line included, are in the buffer of `fields`.
#[derive(Clone, Default, Debug)]
pub struct ResponseHead {
    /// The version in the status line.
    pub version: Version,
    /// The status code, 100 to 999.
    pub status: u16,
    /// The reason phrase, possibly empty.
    pub reason_span: Span,
    /// The field lines.
    pub fields: Fields,
    /// It had bare LF or folded lines, which were replaced when it was parsed.
    pub repaired: bool,
}

impl ResponseHead {
    /// A copy with room for a few more lines.
    #[must_use]
    pub fn roomy_clone(&self) -> ResponseHead {
        ResponseHead { fields: self.fields.roomy_clone(), ..*self }
    }

    /// The reason phrase as received, possibly empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.reason_span.of(&self.fields.bytes)
    }

    /// Sets the status line, as when a response is built rather than parsed.
    pub fn set_line(&mut self, version: Version, status: u16, reason: &[u8]) {
        self.version = version;
        self.status = status;
        self.reason_span = append(&mut self.fields, reason);
    }

    /// Empties the head and keeps its capacity.
    pub fn clear(&mut self) {
        self.fields.clear();
        let fields = std::mem::take(&mut self.fields);
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }
}

/// Appends start-line text to the buffer of `fields`.
fn append(fields: &mut Fields, text: &[u8]) -> Span {
    let start = fields.bytes.len();
    if start + text.len() > FIELDS_BYTES_MAX {
        return Span::default();
    }
    fields.bytes.extend_from_slice(text);
    Span::new(start, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::FieldName;

    #[test]
    fn a_roomy_copy_says_the_same() {
        let mut head = ResponseHead::default();
        head.set_line(Version::Http10, 203, b"Odd Reason");
        head.fields.push(FieldName::Vary, b"a");
        head.fields.push_named(b"X-One", b"1");
        head.fields.push(FieldName::Vary, b"b");
        let mut copy = head.roomy_clone();
        copy.fields.push(FieldName::Via, b"1.1 here");
        assert_eq!(
            (copy.version, copy.status, copy.reason()),
            (Version::Http10, 203, &b"Odd Reason"[..])
        );
        let lines = |head: &ResponseHead| -> Vec<(Vec<u8>, Vec<u8>)> {
            head.fields.iter().map(|(_, name, value)| (name.to_vec(), value.to_vec())).collect()
        };
        assert_eq!(lines(&copy)[..3], lines(&head)[..]);
        assert!(copy.fields.is_repeated(FieldName::Vary) && copy.fields.has(FieldName::Via));
        assert!(!head.fields.has(FieldName::Via));
    }

    #[test]
    fn a_built_head_reads_back() {
        let mut head = RequestHead::default();
        head.set_line(b"BREW", b"/pot", Target::Origin, Version::Http10);
        head.fields.push(FieldName::Host, b"h");
        assert_eq!(
            (head.method, head.method_bytes(), head.target_bytes()),
            (Method::Other, &b"BREW"[..], &b"/pot"[..])
        );
        head.clear();
        assert_eq!((head.method, head.method_bytes()), (Method::Get, &b""[..]));
        assert!(head.fields.is_empty());
    }
}
