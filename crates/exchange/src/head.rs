//! Heads as fields: the facts that a protocol needs, and the place to which it writes.

use std::io::IoSlice;

use humboldt_http::{FieldName, FieldSink, Fields, RequestHead, ResponseHead, Url, Version, h1};
use humboldt_store::StoredHead;

/// The length of a body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// This many bytes.
    Known(u64),
    /// Nobody knows yet: its end is marked, or is the end of the connection.
    Unknown,
}

impl BodyLength {
    /// Whether there is a body to send or to receive.
    pub fn has_body(self) -> bool {
        !matches!(self, Self::None | Self::Known(0))
    }
}

/// A piece of a body, or its end.
#[derive(Copy, Clone, Debug)]
pub enum BodyPart<'a> {
    /// Some bytes.
    Data(&'a [u8]),
    /// Nothing more comes but these trailers.
    End(Option<&'a Fields>),
}

/// The rest of a body, or of a piece of it, where it lies in memory.
pub trait BodySlices {
    /// Puts it into the places of `out`, `most_bytes` of it at most, and says how many places it
    /// used: none where nothing is left.
    fn slices<'s>(&'s self, most_bytes: u64, out: &mut [IoSlice<'s>]) -> usize;
}

impl BodySlices for [u8] {
    fn slices<'s>(&'s self, most_bytes: u64, out: &mut [IoSlice<'s>]) -> usize {
        let end = usize::try_from(most_bytes).unwrap_or(usize::MAX).min(self.len());
        let (Some(bytes), Some(place)) = (self.get(..end), out.first_mut()) else { return 0 };
        *place = IoSlice::new(bytes);
        usize::from(end > 0)
    }
}

/// Where the head of an answer is written.
pub trait ReplySink: FieldSink {
    /// The status, first. A protocol may leave the reason phrase out.
    fn status(&mut self, status: u16, reason: &[u8]);

    /// Status and fields of a stored head.
    fn stored(&mut self, head: &StoredHead) {
        self.status(head.status, head.reason());
        head.fields().for_each(|(name, value)| self.field(name, value));
    }
}

/// The head of an answer without the fields that frame its body. It can be written more than once,
/// because rules may look at it before it is sent.
pub trait ReplyHead {
    /// The status.
    fn status(&self) -> u16;

    /// Writes the status and all fields.
    fn write<S: ReplySink>(&self, sink: &mut S);

    /// The same without the rules of a configuration about fields, which may remove or change what
    /// the proxy itself has to know.
    fn write_unruled<S: ReplySink>(&self, sink: &mut S) {
        self.write(sink);
    }
}

/// The head of an answer with its fields taken apart.
pub fn collect(head: &impl ReplyHead) -> ResponseHead {
    let mut collector = Collector(ResponseHead::default());
    head.write(&mut collector);
    collector.0
}

/// As [`collect`], without the rules of a configuration.
pub(crate) fn collect_unruled(head: &impl ReplyHead) -> ResponseHead {
    let mut collector = Collector(ResponseHead::default());
    head.write_unruled(&mut collector);
    collector.0
}

/// The head of a request in the media type `message/http` (RFC 9112 10.1), without the fields that
/// `skip` names.
pub fn as_message(head: &RequestHead, skip: impl Fn(FieldName) -> bool) -> Vec<u8> {
    let mut message = Vec::new();
    h1::write_request_line(&mut message, head.method_bytes(), head.target_bytes(), head.version);
    for (id, name, value) in head.fields.iter() {
        if !skip(id) {
            h1::write_field(&mut message, name, value);
        }
    }
    h1::write_end(&mut message);
    message
}

struct Collector(ResponseHead);

impl FieldSink for Collector {
    fn parts(&mut self, name: &[u8], value: &[&[u8]]) {
        self.0.fields.push_named(name, &value.concat());
    }
}

impl ReplySink for Collector {
    fn status(&mut self, status: u16, reason: &[u8]) {
        self.0.set_line(Version::Http11, status, reason);
    }
}

impl ReplyHead for StoredHead {
    fn status(&self) -> u16 {
        self.status
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        sink.stored(self);
    }
}

/// The method and target of a request, and its server.
#[derive(Copy, Clone, Debug)]
pub struct AskLine<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The resource; for CONNECT the place that the tunnel leads to.
    pub url: &'a Url,
    /// The value of Host: the authority that the server knows itself by.
    pub host: &'a [u8],
    /// The server is a proxy, so it gets the whole URL.
    pub to_proxy: bool,
    /// The request is about the server as a whole (`OPTIONS *`).
    pub asterisk: bool,
}

/// The head of a request without the fields that frame its body.
pub trait AskHead {
    /// The method and target.
    fn line(&self) -> AskLine<'_>;

    /// The length of the request's body.
    fn length(&self) -> BodyLength {
        BodyLength::None
    }

    /// Protocols to switch to (RFC 9110 7.8), as a value of Upgrade.
    fn upgrade(&self) -> Option<&[u8]> {
        None
    }

    /// Whether the connection may serve other requests afterwards.
    fn persists(&self) -> bool {
        true
    }

    /// Writes all fields but Host.
    fn write<S: FieldSink>(&self, sink: &mut S);
}
