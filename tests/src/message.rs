//! Reading HTTP/1 messages from a socket, for the clients and servers of the tests only.

use std::io::{ErrorKind, Read, Result};

/// The first line and the fields of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Request line or status line.
    pub start: String,
    /// Names as they were sent, values without surrounding blanks.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The first field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All fields of that name, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The `index`th word of the first line.
    #[must_use]
    pub fn word(&self, index: usize) -> &str {
        self.start.splitn(3, ' ').nth(index).unwrap_or_default()
    }
}

/// A body, and whether its end was really its end.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The payload without chunk framing.
    pub bytes: Vec<u8>,
    /// Trailer fields behind the last chunk.
    pub trailers: Vec<(String, String)>,
    /// False if the connection ended before the framing said so.
    pub is_complete: bool,
}

/// A buffered reader of messages.
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    received: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads messages from `input`.
    pub fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), received: Vec::new() }
    }

    /// The source of the messages.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Everything that came in so far, byte by byte.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Reads more; false at the end of the stream. A reset counts as the end.
    fn fill(&mut self) -> Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let len = loop {
            match self.input.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break 0,
                other => break other?,
            }
        };
        self.buffer.extend_from_slice(&chunk[..len]);
        self.received.extend_from_slice(&chunk[..len]);
        Ok(len > 0)
    }

    /// Takes a line with its CRLF or LF removed; `None` at the end of the stream.
    fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line);
                return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn fields(&mut self) -> Result<Option<Vec<(String, String)>>> {
        let mut fields = Vec::new();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if line.is_empty() {
                return Ok(Some(fields));
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// The next head, or `None` if the stream ends first.
    pub fn head(&mut self) -> Result<Option<Head>> {
        let Some(start) = self.line()? else { return Ok(None) };
        Ok(self.fields()?.map(|fields| Head { start, fields }))
    }

    /// Exactly `len` bytes, or fewer at the end of the stream.
    pub fn exactly(&mut self, len: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < len && self.fill()? {}
        Ok(self.buffer.drain(..len.min(self.buffer.len())).collect())
    }

    /// A body of `len` bytes.
    pub fn sized_body(&mut self, len: usize) -> Result<Body> {
        let bytes = self.exactly(len)?;
        Ok(Body { is_complete: bytes.len() == len, bytes, trailers: Vec::new() })
    }

    /// A chunked body with its trailers.
    pub fn chunked_body(&mut self) -> Result<Body> {
        let mut body = Body::default();
        loop {
            let Some(line) = self.line()? else { return Ok(body) };
            let digits = line.split(';').next().unwrap_or_default().trim();
            let len = usize::from_str_radix(digits, 16).map_err(|_| ErrorKind::InvalidData)?;
            if len == 0 {
                let trailers = self.fields()?;
                body.is_complete = trailers.is_some();
                body.trailers = trailers.unwrap_or_default();
                return Ok(body);
            }
            let bytes = self.exactly(len)?;
            let is_short = bytes.len() < len;
            body.bytes.extend(bytes);
            if is_short || self.line()?.is_none() {
                return Ok(body);
            }
        }
    }

    /// Everything up to the end of the stream.
    pub fn rest(&mut self) -> Result<Body> {
        while self.fill()? {}
        Ok(Body {
            bytes: std::mem::take(&mut self.buffer),
            trailers: Vec::new(),
            is_complete: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_without_its_last_chunk_is_incomplete() {
        let whole: &[u8] = b"HTTP/1.1 200 OK\r\nA:  b \r\n\r\n3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n";
        let mut reader = Reader::new(whole);
        assert_eq!(reader.head().unwrap().unwrap().field("a"), Some("b"));
        let body = reader.chunked_body().unwrap();
        assert!(body.is_complete);
        assert_eq!((body.bytes.as_slice(), body.trailers[0].1.as_str()), (&b"abc"[..], "u"));

        let mut reader = Reader::new(&b"3\r\nabc\r\n"[..]);
        assert!(!reader.chunked_body().unwrap().is_complete);
        let mut reader = Reader::new(&b"3\r\nab"[..]);
        assert!(!reader.chunked_body().unwrap().is_complete);
    }
}
