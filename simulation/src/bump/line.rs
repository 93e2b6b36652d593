//! One end of a connection, with a record of its bytes, and TLS over it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::rc::Rc;

use humboldt_net::Stream;
use rustls::Connection;

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// What went over a connection.
#[derive(Default)]
pub(super) struct Record {
    pub(super) sent: Vec<u8>,
    pub(super) received: Vec<u8>,
    /// All that this end had to send, and its end, was sent.
    pub(super) is_ended: bool,
}

/// One end of a connection.
pub(super) struct Line {
    stream: Stream,
    record: Rc<RefCell<Record>>,
}

impl Line {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, record: Rc::default() }
    }

    pub(super) fn record(&self) -> Rc<RefCell<Record>> {
        Rc::clone(&self.record)
    }

    /// Sends all of it. Whatever the other side may have got is in the record.
    pub(super) async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.record.borrow_mut().sent.extend_from_slice(bytes);
        let mut rest = bytes;
        poll_fn(|cx| self.stream.poll_write_all(cx, &mut rest)).await
    }

    /// Some bytes; none at the end.
    pub(super) async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        let read = poll_fn(|cx| self.stream.poll_read_shared(cx, &mut bytes)).await?;
        bytes.truncate(read);
        self.record.borrow_mut().received.extend_from_slice(&bytes);
        Ok(bytes)
    }

    /// Waits for the end, and drops what comes before.
    pub(super) async fn drain(&self) {
        while self.receive().await.is_ok_and(|bytes| !bytes.is_empty()) {}
    }

    /// Says that nothing more is sent.
    pub(super) async fn shut_down(&self) {
        _ = poll_fn(|cx| self.stream.poll_shut_down_write(cx)).await;
        self.record.borrow_mut().is_ended = true;
    }

    /// Its close is a reset.
    pub(super) fn break_off(self) {
        _ = self.stream.reset_on_close();
    }
}

/// TLS over a line.
pub(super) struct Session {
    pub(super) line: Line,
    pub(super) tls: Connection,
    /// Plaintext that was not read. The library keeps little of it.
    plain: Vec<u8>,
    has_ended: bool,
}

impl Session {
    pub(super) fn new(line: Line, tls: impl Into<Connection>) -> Self {
        Self { line, tls: tls.into(), plain: Vec::new(), has_ended: false }
    }

    /// What is to be sent now.
    pub(super) fn take_out(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            _ = self.tls.write_tls(&mut out);
        }
        out
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let out = self.take_out();
        if out.is_empty() { Ok(()) } else { self.line.send(&out).await }
    }

    /// Takes bytes that have come.
    fn take_in(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.tls.read_tls(&mut bytes)? == 0 {
                return Ok(());
            }
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut plain)?;
            self.plain.extend(plain);
        }
        Ok(())
    }

    /// Reads once.
    async fn step(&mut self) -> io::Result<()> {
        self.flush().await?;
        let bytes = self.line.receive().await?;
        self.has_ended |= bytes.is_empty();
        let taken = self.take_in(&bytes);
        if taken.is_err() {
            // The alert says why.
            _ = self.flush().await;
        }
        taken
    }

    pub(super) async fn shake_hands(&mut self) -> io::Result<()> {
        while self.tls.is_handshaking() {
            self.step().await?;
            if self.has_ended && self.tls.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush().await
    }

    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.flush().await?;
        }
        Ok(())
    }

    /// Plaintext; none at its end. An end that was not told is an error.
    pub(super) async fn read(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if !self.plain.is_empty() {
                return Ok(std::mem::take(&mut self.plain));
            }
            match self.tls.reader().read(&mut [0]) {
                // The end: all data has been taken already.
                Ok(_) => return Ok(Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.has_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.step().await?;
        }
    }

    /// Says that nothing follows.
    pub(super) async fn end(&mut self) {
        self.tls.send_close_notify();
        if self.flush().await.is_ok() {
            self.line.shut_down().await;
        }
    }
}
