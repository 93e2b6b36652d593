//! HTTP/1.1 inside of TLS, as clients and servers of a simulation speak it.

use std::io;

use humboldt_http::h1;
use humboldt_http::{FieldName, HeadLimits, RequestHead, ResponseHead};

use crate::bodies::Body;
use crate::bump::line::Session;

/// An answer as far as it has come.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The length that was said.
    pub(super) bytes: u64,
    pub(super) body: Vec<u8>,
    /// All of it has come.
    pub(super) is_whole: bool,
    /// The other side closes behind it.
    pub(super) closes: bool,
}

impl Reply {
    /// The first fault in its body.
    pub(super) fn differs_from(&self, body: Body) -> Option<String> {
        if self.bytes != body.bytes {
            return Some(format!("{} bytes instead of {}", self.bytes, body.bytes));
        }
        let at = body.differs(0, &self.body)?;
        Some(format!("another byte at {at}"))
    }
}

/// Sends a request.
pub(super) async fn ask(session: &mut Session, host: &str, path: usize, id: u64) -> io::Result<()> {
    let text = format!("GET /r{path} HTTP/1.1\r\nHost: {host}\r\nX-Id: {id}\r\n\r\n");
    session.write(text.as_bytes()).await
}

/// Reads an answer; `None`: not even its head has come. At most about `most` bytes of the body are
/// read.
pub(super) async fn hear(session: &mut Session, most: u64) -> Option<Reply> {
    let mut bytes = Vec::new();
    let mut head = ResponseHead::default();
    let used = loop {
        let parsed = h1::parse_response(&bytes, &HeadLimits::default(), &mut head);
        match parsed {
            Ok(Some(used)) => break used,
            Ok(None) => {}
            Err(_) => return None,
        }
        match session.read().await {
            Ok(more) if !more.is_empty() => bytes.extend(more),
            _ => return None,
        }
    };
    let mut reply = Reply {
        status: head.status,
        bytes: length(head.fields.get(FieldName::ContentLength)),
        body: bytes.split_off(used),
        is_whole: false,
        closes: head.fields.get(FieldName::Connection) == Some(b"close"),
    };
    loop {
        reply.is_whole = reply.body.len() as u64 >= reply.bytes;
        if reply.is_whole || reply.body.len() as u64 >= most {
            return Some(reply);
        }
        match session.read().await {
            Ok(more) if !more.is_empty() => reply.body.extend(more),
            _ => return Some(reply),
        }
    }
}

/// Reads a request: the number of its path. `None`: there is no more.
pub(super) async fn next(session: &mut Session, kept: &mut Vec<u8>) -> Option<usize> {
    loop {
        let mut head = RequestHead::default();
        match h1::parse_request(kept, &HeadLimits::default(), &mut head) {
            Ok(Some(used)) => {
                kept.drain(..used);
                let path = std::str::from_utf8(head.target_bytes()).ok()?;
                return path.strip_prefix("/r")?.parse().ok();
            }
            Ok(None) => {}
            Err(_) => return None,
        }
        match session.read().await {
            Ok(more) if !more.is_empty() => kept.extend(more),
            _ => return None,
        }
    }
}

fn length(value: Option<&[u8]>) -> u64 {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
