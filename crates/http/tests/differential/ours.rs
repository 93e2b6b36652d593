//! Reading with the codec under test.

use crate::reading::{End, Message, Reading, sorted};
use humboldt_http::h1::{
    BodyDecoder, BodyError, Framing, HeadError, keep_alive, parse_request, parse_response,
    request_framing, response_framing,
};
use humboldt_http::{
    FieldName, Fields, HeadLimits, Method, RequestHead, ResponseHead, Target, Version,
};

/// Received bytes that are not used yet, and bytes still to arrive.
struct Input<'a> {
    pieces: std::slice::Iter<'a, &'a [u8]>,
    buffer: Vec<u8>,
}

impl Input<'_> {
    /// Takes the next piece; false when there is none.
    fn more(&mut self) -> bool {
        self.pieces.next().is_some_and(|piece| {
            self.buffer.extend_from_slice(piece);
            true
        })
    }
}

fn refused(error: HeadError) -> End {
    End::Refused(format!("{error:?}"))
}

fn listed(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    sorted(fields.iter().map(|(_, name, value)| {
        (String::from_utf8_lossy(name).to_ascii_lowercase(), value.to_vec())
    }))
}

fn version(version: Version) -> &'static str {
    if version == Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" }
}

/// Reads the body that follows.
fn body(input: &mut Input<'_>, framing: Framing, message: &mut Message) {
    let mut decoder = BodyDecoder::new(framing);
    while !decoder.is_done() {
        if input.buffer.is_empty() && !input.more() {
            match decoder.on_eof() {
                Ok(()) => break,
                Err(BodyError::Truncated) => message.end = End::CutOff,
                Err(error) => message.end = End::Refused(format!("{error:?}")),
            }
            return;
        }
        match decoder.decode(&input.buffer) {
            Err(error) => {
                message.end = End::Refused(format!("{error:?}"));
                return;
            }
            Ok(step) => {
                message.data.extend_from_slice(&input.buffer[step.data]);
                input.buffer.drain(..step.consumed);
            }
        }
    }
    message.trailers = decoder.trailers().map(|trailers| listed(&trailers)).unwrap_or_default();
    message.end = End::Complete;
}

/// The end of a reading whose next head does not come.
fn without_head(input: &Input<'_>) -> End {
    if input.buffer.is_empty() { End::Complete } else { End::CutOff }
}

/// The answer to a request of this method; interim ones are skipped.
pub(crate) fn response(pieces: &[&[u8]], method: Method) -> Reading {
    let mut input = Input { pieces: pieces.iter(), buffer: Vec::new() };
    let mut head = ResponseHead::default();
    let nothing = |end| Reading { messages: Vec::new(), end };
    loop {
        match parse_response(&input.buffer, &HeadLimits::default(), &mut head) {
            Err(error) => return nothing(refused(error)),
            Ok(None) if input.more() => {}
            Ok(None) => return nothing(without_head(&input)),
            Ok(Some(used)) => {
                input.buffer.drain(..used);
                if head.status >= 200 || head.status == 101 {
                    break;
                }
            }
        }
    }
    let framing = match response_framing(&head, &method) {
        Err(error) => return nothing(refused(error)),
        Ok(framing) => framing,
    };
    let mut message = Message {
        start: format!("{} {}", version(head.version), head.status),
        fields: listed(&head.fields),
        data: Vec::new(),
        trailers: Vec::new(),
        end: End::Complete,
    };
    body(&mut input, framing, &mut message);
    Reading { messages: vec![message], end: End::Complete }
}

/// The requests of a connection, as long as it persists.
pub(crate) fn requests(pieces: &[&[u8]]) -> Reading {
    let mut input = Input { pieces: pieces.iter(), buffer: Vec::new() };
    let mut reading = Reading { messages: Vec::new(), end: End::Complete };
    loop {
        let mut head = RequestHead::default();
        match parse_request(&input.buffer, &HeadLimits::default(), &mut head) {
            Err(error) => reading.end = refused(error),
            Ok(None) if input.more() => continue,
            Ok(None) => reading.end = without_head(&input),
            Ok(Some(used)) => {
                input.buffer.drain(..used);
                let framing = request_framing(&head).expect("the parser has checked it");
                let mut message = Message {
                    start: start(&head),
                    fields: listed(&head.fields),
                    data: Vec::new(),
                    trailers: Vec::new(),
                    end: End::Complete,
                };
                body(&mut input, framing, &mut message);
                let is_complete = message.end == End::Complete;
                reading.messages.push(message);
                // hyper knows no Proxy-Connection, and no Connection with a byte beyond ASCII.
                // Whether the connection then persists is no question of framing.
                let goes_on = keep_alive(head.version, &head.fields)
                    && head.method != Method::Connect
                    && !head.fields.has(FieldName::ProxyConnection)
                    && head.fields.get_all(FieldName::Connection).all(<[u8]>::is_ascii);
                if is_complete && goes_on {
                    continue;
                }
                reading.end = End::Closed;
            }
        }
        return reading;
    }
}

/// The request line. The other reader keeps targets in parts, so only the usual form is compared
/// byte by byte.
fn start(head: &RequestHead) -> String {
    let target = if head.target == Target::Origin { head.target_bytes() } else { b"*" };
    let (method, target) =
        (String::from_utf8_lossy(head.method_bytes()), String::from_utf8_lossy(target));
    format!("{method} {target} {}", version(head.version))
}
