//! A client that does what it is told, and nothing else.

use humboldt_lab_wire::{BodyLength, Chunked, response_head};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    input: Vec<u8>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) keep_alive: bool,
    pub(crate) is_chunked: bool,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| &value[..])
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// A GET, or what `method` is, with fields that each end in CR LF.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str) -> Got {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        self.answer(method)
    }

    pub(crate) fn get(&mut self, path: &str) -> Got {
        self.ask("GET", path, "")
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads one answer to a request of that method.
    pub(crate) fn answer(&mut self, method: &str) -> Got {
        let (mut got, length, used) = loop {
            if let Some(head) = response_head(&self.input).unwrap() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let length = head.body_length(method.as_bytes());
                let got = Got {
                    status: head.status(),
                    fields: head.headers().map(|(name, value)| (text(name), text(value))).collect(),
                    keep_alive: head.keep_alive(),
                    is_chunked: length == BodyLength::Chunked,
                    body: Vec::new(),
                };
                break (got, length, head.len_bytes());
            }
            assert!(
                self.receive(),
                "closed before the end of a head: {:?}",
                String::from_utf8_lossy(&self.input)
            );
        };
        self.input.drain(..used);
        got.body = match length {
            BodyLength::None => Vec::new(),
            BodyLength::Length(bytes) => self.take(bytes as usize),
            BodyLength::Chunked => self.take_chunks(),
            BodyLength::UntilClose => panic!("an origin announces its lengths"),
        };
        got
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.input.len() < bytes {
            assert!(self.receive(), "closed within a body: {} of {bytes} bytes", self.input.len());
        }
        self.input.drain(..bytes).collect()
    }

    fn take_chunks(&mut self) -> Vec<u8> {
        let (mut decoder, mut body) = (Chunked::new(), Vec::new());
        loop {
            let fed = decoder.feed(&self.input).unwrap();
            body.extend_from_slice(&self.input[fed.data]);
            self.input.drain(..fed.consumed);
            if fed.done {
                return body;
            }
            assert!(!self.input.is_empty() || self.receive(), "closed within chunks");
        }
    }

    /// Reads once; false at the end.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(got) => {
                self.input.extend_from_slice(&buffer[..got]);
                got > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the server has closed and sent nothing more; waits for it.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.input.is_empty() && !self.receive()
    }
}
