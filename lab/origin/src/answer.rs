//! Heads of answers.

use humboldt_lab_wire::http_date;
use humboldt_lab_workload::{BodyKey, Facts, Version, Workload, protocol};

/// An answer, decided on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) envelope: Envelope,
    pub(crate) content: Content,
}

/// The parts of an answer that come from its request and connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) id: Option<u64>,
    pub(crate) is_head: bool,
    pub(crate) is_http_1_0: bool,
    /// The connection ends with this answer.
    pub(crate) close: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Object(Object),
    Text(Text),
}

/// An object of the workload, in the version of the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) facts: Facts,
    pub(crate) version: Version,
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// 200 with Content-Length.
    Whole,
    /// 200 in chunks.
    Chunked,
    /// 206 with the bytes from `first` up to and with `last`.
    Part { first: u64, last: u64 },
    /// 304.
    NotModified,
    /// 416.
    Unsatisfiable,
    /// 200 to a POST: the body, and nothing that may be stored.
    Posted,
}

/// Answers that are not about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Health,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
}

impl Text {
    fn status(self) -> &'static str {
        match self {
            Self::Health => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed\r\nAllow: GET, HEAD, POST",
            Self::TooLarge => "413 Content Too Large",
        }
    }

    fn body(self) -> &'static str {
        match self {
            Self::Health => "ok",
            Self::BadRequest => "This is not a request of HTTP/1.\n",
            Self::NotFound => "The workload has no object of this name.\n",
            Self::MethodNotAllowed => "This is a server; it knows GET, HEAD and POST.\n",
            Self::TooLarge => "The body is longer than 64 MiB.\n",
        }
    }
}

impl Answer {
    /// An answer that refuses, and ends the connection.
    pub(crate) fn last(text: Text) -> Self {
        Self {
            envelope: Envelope { close: true, ..Envelope::default() },
            content: Content::Text(text),
        }
    }

    /// The bytes of the object's body that are to be sent: from, up to but not with.
    pub(crate) fn body_range(&self) -> (u64, u64) {
        match self.content {
            Content::Object(_) if self.envelope.is_head => (0, 0),
            Content::Object(object) => object.body_range(),
            Content::Text(_) => (0, 0),
        }
    }

    /// The source of the object's bytes.
    pub(crate) fn body_key(&self) -> Option<BodyKey> {
        match &self.content {
            Content::Object(object) => Some(object.facts.body(object.version.number)),
            Content::Text(_) => None,
        }
    }

    /// Whether the body goes out in chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.content, Content::Object(Object { shape: Shape::Chunked, .. }))
            && !self.envelope.is_head
    }

    /// Appends the head, and the body if it is a mere text.
    pub(crate) fn write_head(&self, workload: &Workload, date: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        match &self.content {
            Content::Object(object) => object.write_fields(workload, date, out),
            Content::Text(text) => write_text_fields(*text, date, out),
        }
        if let Some(id) = self.envelope.id {
            push(out, &[b"\r\n", protocol::REQUEST_ID.as_bytes(), b": ", &hex(id)]);
        }
        if self.envelope.close {
            out.extend_from_slice(b"\r\nConnection: close");
        } else if self.envelope.is_http_1_0 {
            out.extend_from_slice(b"\r\nConnection: keep-alive");
        }
        out.extend_from_slice(b"\r\n\r\n");
        if let (Content::Text(text), false) = (&self.content, self.envelope.is_head) {
            out.extend_from_slice(text.body().as_bytes());
        }
    }
}

impl Object {
    fn body_range(&self) -> (u64, u64) {
        match self.shape {
            Shape::Whole | Shape::Chunked | Shape::Posted => (0, self.facts.size_bytes),
            Shape::Part { first, last } => (first, last + 1),
            Shape::NotModified | Shape::Unsatisfiable => (0, 0),
        }
    }

    fn write_fields(&self, workload: &Workload, date: &[u8], out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        let status: &[u8] = match self.shape {
            Shape::Whole | Shape::Chunked | Shape::Posted => b"200 OK",
            Shape::Part { .. } => b"206 Partial Content",
            Shape::NotModified => b"304 Not Modified",
            Shape::Unsatisfiable => b"416 Range Not Satisfiable",
        };
        push(out, &[status, b"\r\nDate: ", date]);
        if self.shape != Shape::NotModified {
            let mime =
                workload.types().get(usize::from(self.facts.kind)).map_or("", |kind| &kind.mime);
            push(out, &[b"\r\nContent-Type: ", mime.as_bytes()]);
        }
        let size = self.facts.size_bytes;
        match self.shape {
            Shape::Chunked => out.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
            Shape::NotModified => {}
            _ => {
                let (begin, end) = self.body_range();
                push(out, &[b"\r\nContent-Length: ", number.format(end - begin).as_bytes()]);
            }
        }
        match self.shape {
            Shape::Part { first, last } => {
                push(out, &[b"\r\nContent-Range: bytes ", number.format(first).as_bytes()]);
                push(out, &[b"-", number.format(last).as_bytes()]);
                push(out, &[b"/", number.format(size).as_bytes()]);
            }
            Shape::Unsatisfiable => {
                push(out, &[b"\r\nContent-Range: bytes */", number.format(size).as_bytes()])
            }
            _ => {}
        }
        out.extend_from_slice(b"\r\nETag: ");
        Workload::etag(&self.facts, self.version.number, out);
        out.extend_from_slice(b"\r\nLast-Modified: ");
        http_date(self.version.modified_s, out);
        self.write_lifetime(out);
    }

    /// How long a cache may keep it.
    fn write_lifetime(&self, out: &mut Vec<u8>) {
        if self.facts.cachable && !matches!(self.shape, Shape::Posted | Shape::Unsatisfiable) {
            out.extend_from_slice(b"\r\nCache-Control: public\r\nExpires: ");
            http_date(self.version.expires_s, out);
            return;
        }
        // Servers say it in several ways; to a shared cache each forbids the same.
        let ways: [&[u8]; 3] = [b"no-store", b"private", b"private, no-store"];
        push(out, &[b"\r\nCache-Control: ", ways[(self.facts.key % 3) as usize]]);
    }
}

fn write_text_fields(text: Text, date: &[u8], out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    push(out, &[text.status().as_bytes(), b"\r\nDate: ", date, b"\r\nContent-Type: text/plain"]);
    push(out, &[b"\r\nContent-Length: ", number.format(text.body().len()).as_bytes()]);
    out.extend_from_slice(b"\r\nCache-Control: no-store");
}

fn push(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

fn hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15])
}
