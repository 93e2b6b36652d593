//! The stored response head: bytes that a hit sends unchanged, and the facts that a hit needs.

use humboldt_http::conditional::Validators;
use humboldt_http::h1::{HEAD_FIELDS_LIMIT, parse_response};
use humboldt_http::{FieldName, HeadLimits, ResponseHead, Span, date};

/// Longest stored head in bytes. Received heads are bounded below that; longer ones on disk are
/// refused.
pub const STORED_HEAD_BYTES_MAX: usize = 1024 * 1024;

/// `HTTP/1.1 200 `: a status line up to its reason phrase.
const STATUS_BYTES: usize = 13;

/// Stored bytes are not a response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored response head does not parse")]
pub struct MalformedHead;

/// Status line and end-to-end fields, each line with its CRLF, without the empty line that ends a
/// head: the sender appends fields of its own (Age, Via, Connection) first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    bytes: Box<[u8]>,
    etag: Option<Span>,
    content_type: Option<Span>,
    /// Last-Modified in unix seconds, if there is a valid one.
    pub last_modified: Option<i64>,
    /// The status code.
    pub status: u16,
}

impl StoredHead {
    /// Serialises a received head without the fields for which `skip` is true (hop-by-hop fields,
    /// Age and others that are made for each client). The version is always HTTP/1.1, because it is
    /// ours.
    pub fn from_response(head: &ResponseHead, skip: impl Fn(FieldName, &[u8]) -> bool) -> Self {
        Self::with_via(head, None, skip)
    }

    /// The same with this element of Via behind the received ones.
    pub fn with_via(
        head: &ResponseHead,
        via: Option<&[u8]>,
        skip: impl Fn(FieldName, &[u8]) -> bool,
    ) -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(b"HTTP/1.1 ");
        let digits = |n: u16| b'0' + (n % 10) as u8;
        bytes.extend([
            digits(head.status / 100),
            digits(head.status / 10),
            digits(head.status),
            b' ',
        ]);
        bytes.extend_from_slice(head.reason());
        bytes.extend_from_slice(b"\r\n");
        let mut stored = Self::empty(head.status);
        let via = via.map(|via| (FieldName::Via, &b"Via"[..], via));
        for (id, name, value) in head.fields.iter().chain(via) {
            if !skip(id, name) {
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(b": ");
                stored.note(id, bytes.len(), value);
                bytes.extend_from_slice(value);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        // A copy of the right length costs less than shrinking.
        stored.bytes = Box::from(&*bytes);
        stored
    }

    /// Takes over bytes that [`StoredHead::bytes`] gave, as read from a disk.
    pub fn from_bytes(bytes: Box<[u8]>) -> Result<Self, MalformedHead> {
        let head = parse(&bytes)?;
        let mut stored = Self::empty(head.status);
        for line in lines(&bytes).skip(1) {
            let colon = line.text.iter().position(|&byte| byte == b':').ok_or(MalformedHead)?;
            let value = line.text.get(colon + 2..).unwrap_or_default();
            let id = line.text.get(..colon).map_or(FieldName::Other, FieldName::from_bytes);
            stored.note(id, line.start + colon + 2, value);
        }
        stored.bytes = bytes;
        Ok(stored)
    }

    fn empty(status: u16) -> Self {
        Self { bytes: Box::default(), etag: None, content_type: None, last_modified: None, status }
    }

    /// Remembers the position or the value of a field; the first of a name counts.
    fn note(&mut self, id: FieldName, start: usize, value: &[u8]) {
        // Heads are far shorter than 4 GiB; a span that did not fit would read as empty.
        let span = Span { start: start as u32, end: (start + value.len()) as u32 };
        match id {
            FieldName::Etag => _ = self.etag.get_or_insert(span),
            FieldName::ContentType => _ = self.content_type.get_or_insert(span),
            FieldName::LastModified if self.last_modified.is_none() => {
                self.last_modified = date::parse(value)
            }
            _ => {}
        }
    }

    /// The serialised head.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The reason phrase, possibly empty.
    pub fn reason(&self) -> &[u8] {
        let line = lines(&self.bytes).next().map_or(&b""[..], |line| line.text);
        line.get(STATUS_BYTES..).unwrap_or_default()
    }

    /// Its fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(&self.bytes).skip(1).filter_map(|line| {
            let colon = memchr::memchr(b':', line.text)?;
            let (name, value) = line.text.split_at_checked(colon)?;
            Some((name, value.get(2..).unwrap_or_default()))
        })
    }

    /// The entity tag as it was sent, with `W/` and quotes.
    pub fn etag(&self) -> Option<&[u8]> {
        self.etag.map(|span| span.of(&self.bytes))
    }

    /// The validators by which conditions are judged.
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag(), last_modified: self.last_modified }
    }

    /// The media type.
    pub fn content_type(&self) -> Option<&[u8]> {
        self.content_type.map(|span| span.of(&self.bytes))
    }

    /// The values of all fields with this name, in lower case.
    pub fn values(&self, name: &'static [u8]) -> impl Iterator<Item = &[u8]> {
        lines(&self.bytes).filter_map(move |line| {
            let (found, value) = line.text.split_at_checked(name.len())?;
            let value = value.strip_prefix(b":")?;
            found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
        })
    }

    /// The head with its fields taken apart, for the rare cases that look at more than the above.
    pub fn to_response_head(&self) -> ResponseHead {
        // The bytes were written or checked by us, so they parse; an empty head matches nothing.
        parse(&self.bytes).unwrap_or_default()
    }
}

/// Parses a head that lacks its final empty line.
fn parse(bytes: &[u8]) -> Result<ResponseHead, MalformedHead> {
    if bytes.len() > STORED_HEAD_BYTES_MAX {
        return Err(MalformedHead);
    }
    let mut text = Vec::with_capacity(bytes.len() + 2);
    text.extend_from_slice(bytes);
    text.extend_from_slice(b"\r\n");
    let limits = HeadLimits {
        max_head_bytes: STORED_HEAD_BYTES_MAX + 2,
        max_fields: HEAD_FIELDS_LIMIT,
        ..HeadLimits::default()
    };
    let mut head = ResponseHead::default();
    match parse_response(&text, &limits, &mut head) {
        Ok(Some(len)) if len == text.len() => Ok(head),
        _ => Err(MalformedHead),
    }
}

/// One line of a head without its CRLF.
struct Line<'a> {
    start: usize,
    text: &'a [u8],
}

/// The lines of a head that was parsed successfully.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        // Neither names nor values have line ends.
        let end = memchr::memchr(b'\r', rest).unwrap_or(rest.len());
        let line = Line { start, text: rest.get(..end)? };
        start += end + 2;
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use humboldt_http::Version;

    use super::*;

    fn sample() -> ResponseHead {
        let mut head = ResponseHead::default();
        head.set_line(Version::Http10, 203, b"Odd Reason");
        head.fields.push(FieldName::Etag, b"W/\"a:b\"");
        head.fields.push(FieldName::Connection, b"close");
        head.fields.push(FieldName::LastModified, b"Sun, 06 Nov 1994 08:49:37 GMT");
        head.fields.push_named(b"X-Empty", b"");
        head.fields.push(FieldName::ContentType, b"text/html; charset=utf-8");
        head.fields.push(FieldName::Etag, b"\"second\"");
        head
    }

    #[test]
    fn keeps_what_it_should_and_finds_it_again() {
        let stored = StoredHead::from_response(&sample(), |id, _| id == FieldName::Connection);
        assert!(stored.bytes().starts_with(b"HTTP/1.1 203 Odd Reason\r\n"));
        assert!(stored.bytes().ends_with(b"\"second\"\r\n"));
        assert_eq!(stored.status, 203);
        assert_eq!(stored.reason(), b"Odd Reason");
        let fields: Vec<_> = stored.fields().collect();
        assert_eq!(fields[0], (&b"ETag"[..], &b"W/\"a:b\""[..]));
        assert_eq!(fields[2], (&b"X-Empty"[..], &b""[..]));
        assert_eq!(stored.etag(), Some(&b"W/\"a:b\""[..]));
        assert_eq!(stored.last_modified, Some(784_111_777));
        assert_eq!(stored.content_type(), Some(&b"text/html; charset=utf-8"[..]));
        let head = stored.to_response_head();
        assert_eq!((head.status, head.reason()), (203, &b"Odd Reason"[..]));
        assert!(!head.fields.has(FieldName::Connection));
        assert_eq!(head.fields.get_by_name(b"x-empty"), Some(&b""[..]));
        assert_eq!(stored.values(b"etag").collect::<Vec<_>>(), [&b"W/\"a:b\""[..], b"\"second\""]);
        assert_eq!(stored.values(b"x-empty").collect::<Vec<_>>(), [b""]);
        assert_eq!(stored.values(b"x").count(), 0);
    }

    #[test]
    fn bytes_from_disk_give_the_same_head() {
        let stored = StoredHead::from_response(&sample(), |_, _| false);
        assert_eq!(StoredHead::from_bytes(stored.bytes().into()), Ok(stored));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let good = StoredHead::from_response(&sample(), |_, _| false);
        for bytes in
            [&b""[..], b"\r\n", b"HTTP/1.1 200 OK", b"garbage\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
        {
            assert_eq!(StoredHead::from_bytes(bytes.into()), Err(MalformedHead), "{bytes:?}");
        }
        let cut = &good.bytes()[..good.bytes().len() - 5];
        assert_eq!(StoredHead::from_bytes(cut.into()), Err(MalformedHead));
    }
}
