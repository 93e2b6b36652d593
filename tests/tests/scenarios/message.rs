//! Reading messages out of the bytes that have arrived. Nothing is repaired: bytes that are no
//! message are an error.

use humboldt_tests::message::Head;

/// A head at the beginning of `input` and its length; `None` while it is incomplete.
pub(crate) fn head(input: &[u8]) -> Result<Option<(Head, usize)>, String> {
    let mut lines = Lines { input, at: 0 };
    let Some(start) = lines.next() else { return Ok(None) };
    let start = text(start)?;
    let Some(fields) = fields(&mut lines)? else { return Ok(None) };
    Ok(Some((Head { start, fields }, lines.at)))
}

struct Lines<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// The next complete line, without its end.
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.input.get(self.at..)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }
}

fn text(line: &[u8]) -> Result<String, String> {
    // Bytes above ASCII are kept one by one, so that a test can see them.
    let text: String = line.iter().map(|&byte| char::from(byte)).collect();
    if text.contains(['\r', '\n', '\0']) {
        return Err(format!("a line with a control character in it: {text:?}"));
    }
    Ok(text)
}

fn fields(lines: &mut Lines<'_>) -> Result<Option<Vec<(String, String)>>, String> {
    let mut fields = Vec::new();
    loop {
        let Some(line) = lines.next() else { return Ok(None) };
        if line.is_empty() {
            return Ok(Some(fields));
        }
        let line = text(line)?;
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("a field without a colon: {line:?}"))?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return Err(format!("a field whose name is none: {line:?}"));
        }
        fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

/// The rule for the end of a body.
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    /// This many bytes are missing.
    Sized(usize),
    Chunked(Chunk),
    UntilClose,
}

#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    Size,
    /// This many bytes of the chunk are missing.
    Data(usize),
    DataEnd,
    Trailers,
}

/// A body on its way.
#[derive(Debug)]
pub(crate) struct Body {
    framing: Framing,
    /// Received bytes that no step has read.
    pub(crate) bytes: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) is_complete: bool,
}

impl Body {
    /// The body behind a request's head.
    pub(crate) fn of_request(head: &Head) -> Result<Self, String> {
        Self::framed(head, Framing::Sized(0))
    }

    /// The body behind the answer to a request of this method.
    pub(crate) fn of_answer(head: &Head, method: &str) -> Result<Self, String> {
        let status = head.word(1);
        let has_none = method == "HEAD"
            || matches!(status, "204" | "304")
            || status.starts_with('1')
            || (method == "CONNECT" && status.starts_with('2'));
        if has_none {
            return Ok(Self::new(Framing::Sized(0)));
        }
        Self::framed(head, Framing::UntilClose)
    }

    fn framed(head: &Head, otherwise: Framing) -> Result<Self, String> {
        let codings: Vec<&str> = head.all("Transfer-Encoding").collect();
        let lengths: Vec<&str> = head.all("Content-Length").collect();
        let framing = match (codings.as_slice(), lengths.as_slice()) {
            ([], []) => otherwise,
            ([], [length]) => Framing::Sized(
                length.parse().map_err(|_| format!("a Content-Length of {length:?}"))?,
            ),
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => {
                Framing::Chunked(Chunk::Size)
            }
            _ => {
                return Err(format!(
                    "framing by Transfer-Encoding {codings:?} and Content-Length {lengths:?}"
                ));
            }
        };
        Ok(Self::new(framing))
    }

    fn new(framing: Framing) -> Self {
        let is_complete = framing == Framing::Sized(0);
        Self { framing, bytes: Vec::new(), trailers: Vec::new(), is_complete }
    }

    /// Whether only the end of the connection ends it.
    pub(crate) fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Takes the bytes of the body. `has_ended`: nothing comes after `input`.
    pub(crate) fn feed(&mut self, input: &mut Vec<u8>, has_ended: bool) -> Result<(), String> {
        while !self.is_complete {
            let before = input.len();
            match &mut self.framing {
                Framing::UntilClose => {
                    self.bytes.append(input);
                    self.is_complete = has_ended;
                }
                Framing::Sized(missing) => {
                    let len = input.len().min(*missing);
                    self.bytes.extend(input.drain(..len));
                    *missing -= len;
                    self.is_complete = *missing == 0;
                }
                Framing::Chunked(_) => self.feed_chunked(input)?,
            }
            if input.len() == before {
                break;
            }
        }
        Ok(())
    }

    fn feed_chunked(&mut self, input: &mut Vec<u8>) -> Result<(), String> {
        let Framing::Chunked(state) = &mut self.framing else { return Ok(()) };
        let mut lines = Lines { input, at: 0 };
        match state {
            Chunk::Size => {
                let Some(line) = lines.next() else { return Ok(()) };
                let line = text(line)?;
                let digits = line.split(';').next().unwrap_or_default();
                let size = usize::from_str_radix(digits, 16)
                    .map_err(|_| format!("a chunk size of {line:?}"))?;
                *state = if size == 0 { Chunk::Trailers } else { Chunk::Data(size) };
                let len = lines.at;
                input.drain(..len);
            }
            Chunk::Data(missing) => {
                let len = input.len().min(*missing);
                self.bytes.extend(input.drain(..len));
                *missing -= len;
                if *missing == 0 {
                    *state = Chunk::DataEnd;
                }
            }
            Chunk::DataEnd if input.len() < 2 => {}
            Chunk::DataEnd => {
                if !input.starts_with(b"\r\n") {
                    return Err("a chunk that is longer than its size".to_owned());
                }
                input.drain(..2);
                *state = Chunk::Size;
            }
            Chunk::Trailers => {
                let Some(fields) = fields(&mut lines)? else { return Ok(()) };
                let len = lines.at;
                input.drain(..len);
                self.trailers = fields;
                self.is_complete = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(message: &str, has_ended: bool) -> Result<(Body, Vec<u8>), String> {
        let (head, len) = head(message.as_bytes())?.expect("a whole head");
        let mut body = Body::of_answer(&head, "GET")?;
        let mut input = message.as_bytes()[len..].to_vec();
        body.feed(&mut input, has_ended)?;
        Ok((body, input))
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\nT: 1\r\n\r\nmore";
        let (body, rest) = body_of(chunked, false).unwrap();
        assert!(
            body.is_complete
                && body.bytes == b"abc"
                && body.trailers[0].1 == "1"
                && rest == b"more"
        );
        let (body, rest) =
            body_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", false).unwrap();
        assert!(body.is_complete && body.bytes == b"ab" && rest == b"c");
        let (body, _) = body_of("HTTP/1.1 200 OK\r\n\r\nabc", false).unwrap();
        assert!(!body.is_complete);
        let (body, _) = body_of("HTTP/1.1 200 OK\r\n\r\nabc", true).unwrap();
        assert!(body.is_complete && body.bytes == b"abc");
        let (body, _) = body_of("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", true).unwrap();
        assert!(!body.is_complete);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(head(b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\nA: b\nB: c\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\nA: b\r\n").unwrap().is_none());
        assert!(
            body_of(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
                false
            )
            .is_err()
        );
        assert!(
            body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", false)
                .is_err()
        );
    }
}
