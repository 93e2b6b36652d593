//! TLS over another stream.
//!
//! The session and the stream that carries it are used through a shared reference, like a socket.
//! Three rules keep bytes from being lost or waited for in vain:
//!
//! - Plaintext that was decrypted and not read makes the stream readable, whatever its socket says.
//! - Bytes that were taken are encrypted at once. What the socket does not take waits here, at most
//!   [`UNSENT_BYTES_MAX`], and nothing more is taken before.
//! - The end of the socket is not the end of the stream: only `close_notify` is. Without it, bytes
//!   may be missing (RFC 8446 6.1), and reading fails.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use humboldt_base::bump::ServerIdentity;
use humboldt_base::certificate::Certificate;
use humboldt_tls::{
    CertificateFault, ClientSide, Fault, Identified, ServerSide, certificate_facts, cipher_name,
};
use rustls::{ClientConnection, Connection, HandshakeKind, ProtocolVersion, ServerConnection};

use crate::Stream;

/// Most bytes of plaintext that are encrypted and wait for the socket. An answer of 100 KiB goes
/// out in one write.
const UNSENT_BYTES_MAX: usize = 128 * 1024;

/// Bytes that one read takes from the socket, at most.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Encrypted bytes in a row that bring no plaintext, such as tickets. At the next ones the
/// connection is broken, so that nobody can keep a core busy with nothing.
const EMPTY_BYTES_MAX: usize = 256 * 1024;

/// Bytes that a handshake reads at a time.
const HANDSHAKE_BYTES: usize = 4096;

thread_local! {
    /// The place of encrypted bytes between the socket and the session.
    static ENCRYPTED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection with TLS.
pub struct TlsStream {
    carrier: Stream,
    session: RefCell<Session>,
    /// The end is told also where nobody ends the stream in order. Not on the side of a server,
    /// where it could make a part of an answer look like the whole, and not for tunnels.
    tells_end: Cell<bool>,
    /// See [`connect_lenient`].
    server: Option<Rc<ServerIdentity>>,
}

struct Session {
    connection: Connection,
    /// Bytes of plaintext that wait to be read.
    readable_bytes: usize,
    /// Encrypted bytes since the last ones that brought plaintext.
    empty_bytes: usize,
    /// The other side sends no more: it has said so, or the socket has ended.
    has_ended: bool,
    /// We have said that we send no more.
    has_told_end: bool,
    /// Nothing works any more.
    fault: Option<rustls::Error>,
}

/// What was agreed upon, for rules and logs.
#[derive(Clone, Debug, Default)]
pub struct TlsFacts {
    /// `TLS/1.3`, as Squid writes it.
    pub version: &'static str,
    /// The cipher, as OpenSSL names it.
    pub cipher: &'static str,
    /// The session is that of an earlier connection.
    pub is_resumed: bool,
    /// The certificate of the other side.
    pub certificate: Option<Certificate>,
    /// The server, if it was judged after the handshake ([`connect_lenient`]).
    pub server: Option<Rc<ServerIdentity>>,
}

impl TlsStream {
    /// In a place of its own from the start: it is large, and futures that hold it would be.
    fn new(carrier: Stream, mut connection: Connection) -> Box<Self> {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        let tells_end = Cell::new(matches!(connection, Connection::Client(_)));
        let session = Session {
            connection,
            readable_bytes: 0,
            empty_bytes: 0,
            has_ended: false,
            has_told_end: false,
            fault: None,
        };
        Box::new(Self { carrier, session: RefCell::new(session), tells_end, server: None })
    }

    pub(crate) fn carrier(&self) -> &Stream {
        &self.carrier
    }

    /// What was agreed upon.
    pub fn facts(&self) -> TlsFacts {
        let session = self.session.borrow();
        let connection = &session.connection;
        let own = connection.peer_certificates().and_then(<[_]>::first);
        let cipher = connection.negotiated_cipher_suite();
        TlsFacts {
            version: match connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLS/1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLS/1.2",
                _ => "",
            },
            cipher: cipher.and_then(|suite| cipher_name(suite.suite().into())).unwrap_or_default(),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: own.and_then(|own| certificate_facts(own)),
            server: self.server.clone(),
        }
    }

    /// Notes that the server has its key, where this handshake has proved it: one that takes up a
    /// session proves nothing.
    fn note_proof(&self, side: &ClientSide, host: &[u8], is_lenient: bool) {
        let session = self.session.borrow();
        let connection = &session.connection;
        if connection.handshake_kind() != Some(HandshakeKind::Resumed) {
            let chain = connection.peer_certificates().unwrap_or_default();
            side.has_proved(host, chain, is_lenient);
        }
    }

    /// Judges the certificates that the server has shown.
    fn identify(&self, side: &ClientSide, host: &[u8]) -> Result<Identified, Fault> {
        let session = self.session.borrow();
        let connection = &session.connection;
        let chain = connection.peer_certificates().unwrap_or_default();
        let mut found = side.identify(host, chain).ok_or(Fault::NoName)?;
        found.identity.version = connection.protocol_version().map_or(0, u16::from);
        let cipher = connection.negotiated_cipher_suite();
        found.identity.cipher = cipher.and_then(|suite| cipher_name(suite.suite().into()));
        Ok(found)
    }

    /// Whether the other side has shown a certificate whose names cannot be read.
    fn has_unreadable_names(&self) -> bool {
        let session = self.session.borrow();
        let shown = session.connection.peer_certificates().and_then(<[_]>::first);
        shown.is_some_and(|own| certificate_facts(own).is_none())
    }

    /// See [`TlsStream::tells_end`].
    pub(crate) fn leave_end_to_caller(&self) {
        self.tells_end.set(false);
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.session.borrow_mut().read(&self.carrier, buffer)
    }

    /// See [`Stream::poll_read`].
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let session = self.session.get_mut();
        loop {
            if let Some(read) = session.read_known(buffer) {
                return Poll::Ready(read);
            }
            let most_bytes = buffer.len();
            let taken = ready!(session.poll_fill(&mut self.carrier, cx, most_bytes, buffer))?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
    }

    pub(crate) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let session = &mut *self.session.borrow_mut();
        session.check()?;
        session.send(&self.carrier)?;
        let written = session.connection.writer().write_vectored(parts)?;
        match session.send(&self.carrier) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            // The rest is sent when the socket has room.
            _ => Ok(written),
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.session.borrow().connection.wants_write() || self.carrier.has_unsent()
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.borrow().can_read() {
            return Poll::Ready(Ok(()));
        }
        self.carrier.poll_read_ready(cx)
    }

    /// Ready when all that was taken is with the socket, and it may take more.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.carrier.poll_write_ready(cx))?;
            match self.session.borrow_mut().send(&self.carrier) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Says that nothing follows, and sends that.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tells_end.set(false);
        self.session.borrow_mut().say_end();
        while self.has_unsent() {
            ready!(self.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the other side has neither sent anything nor closed. Messages of TLS itself, such as
    /// tickets, are nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        let session = &mut *self.session.borrow_mut();
        if session.can_read() {
            return false;
        }
        loop {
            match session.fill(&self.carrier, HANDSHAKE_BYTES, &mut []) {
                Ok(_) if session.can_read() => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Says that nothing follows, if the socket has room for that.
    pub(crate) fn end_at_once(&self) {
        let session = &mut *self.session.borrow_mut();
        session.say_end();
        _ = session.send(&self.carrier);
    }

    async fn shake_hands(&mut self, early: &[u8]) -> io::Result<()> {
        if !early.is_empty() {
            self.session.get_mut().decrypt(&self.carrier, early, &mut [])?;
        }
        loop {
            if self.session.get_mut().ended_early() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            poll_fn(|cx| self.poll_sent(cx)).await?;
            if !self.session.get_mut().connection.is_handshaking() {
                return Ok(());
            }
            let Self { carrier, session, .. } = &mut *self;
            let session = session.get_mut();
            poll_fn(|cx| session.poll_fill(carrier, cx, HANDSHAKE_BYTES, &mut [])).await?;
        }
    }

    fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.has_unsent() {
            true => self.poll_write_ready(cx),
            false => Poll::Ready(Ok(())),
        }
    }
}

impl Session {
    fn can_read(&self) -> bool {
        self.readable_bytes > 0 || self.has_ended || self.fault.is_some()
    }

    /// Whether the other side has ended the connection during the handshake.
    fn ended_early(&self) -> bool {
        self.has_ended && self.connection.is_handshaking()
    }

    fn check(&self) -> io::Result<()> {
        match &self.fault {
            Some(fault) => Err(invalid(fault.clone())),
            None => Ok(()),
        }
    }

    /// Reads plaintext: what is there, or what one or more reads of the socket bring.
    fn read(&mut self, carrier: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.read_known(buffer) {
                return read;
            }
            let most_bytes = buffer.len();
            let taken = self.fill(carrier, most_bytes, buffer)?;
            if taken > 0 {
                return Ok(taken);
            }
        }
    }

    /// The result of a read that needs nothing from the socket; `None` if it does.
    fn read_known(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        if buffer.is_empty() {
            return Some(Ok(0));
        }
        if self.readable_bytes > 0 {
            return Some(self.take(buffer));
        }
        if self.fault.is_some() {
            let taken = self.take_before_fault(buffer);
            return Some(if taken > 0 { Ok(taken) } else { self.check().map(|()| 0) });
        }
        // Nothing behind a close_notify, otherwise an error.
        self.has_ended.then(|| self.connection.reader().read(buffer).map_err(cut))
    }

    /// Takes plaintext that is there.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let taken = self.connection.reader().read(buffer)?;
        self.readable_bytes = self.readable_bytes.saturating_sub(taken);
        Ok(taken)
    }

    /// The same where a later record was at fault, and nothing tells how much there is.
    fn take_before_fault(&mut self, buffer: &mut [u8]) -> usize {
        match buffer.is_empty() {
            true => 0,
            false => self.connection.reader().read(buffer).unwrap_or(0),
        }
    }

    /// Reads the socket once, at most this many bytes, and decrypts them to `buffer`. Returns the
    /// length of the plaintext.
    ///
    /// If `buffer` takes as many bytes as are read, then at most the plaintext of one record stays
    /// in the session: that of a record of which earlier bytes were there already.
    fn fill(
        &mut self,
        carrier: &Stream,
        most_bytes: usize,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.check()?;
        with_place(most_bytes, |place| {
            let read = carrier.try_read(place)?;
            self.take_in(carrier, place.get(..read).unwrap_or_default(), buffer)
        })
    }

    /// The same for the only user of the carrier: see [`Stream::poll_read`].
    fn poll_fill(
        &mut self,
        carrier: &mut Stream,
        cx: &mut Context<'_>,
        most_bytes: usize,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        with_place(most_bytes, |place| {
            let read = ready!(carrier.poll_read(cx, place))?;
            Poll::Ready(self.take_in(carrier, place.get(..read).unwrap_or_default(), buffer))
        })
    }

    /// Takes what a read has brought: nothing at the end of the socket.
    fn take_in(&mut self, carrier: &Stream, bytes: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            self.has_ended = true;
            // The session learns of the end.
            self.connection.read_tls(&mut io::empty())?;
        }
        self.decrypt(carrier, bytes, buffer)
    }

    /// Takes bytes that have come, and decrypts them to `buffer`.
    fn decrypt(&mut self, carrier: &Stream, bytes: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = bytes;
        let mut taken = 0;
        while !rest.is_empty() && !self.has_ended && self.fault.is_none() {
            self.connection.read_tls(&mut rest)?;
            if let Err(error) = self.process(carrier) {
                // What came before the fault counts.
                taken += self.take_before_fault(buffer.get_mut(taken..).unwrap_or_default());
                if taken == 0 {
                    return Err(error);
                }
            }
            while self.readable_bytes > 0 && taken < buffer.len() {
                taken += self.take(buffer.get_mut(taken..).unwrap_or_default())?;
            }
        }
        self.empty_bytes = match taken == 0 && self.readable_bytes == 0 {
            true => self.empty_bytes + bytes.len(),
            false => 0,
        };
        if self.empty_bytes > EMPTY_BYTES_MAX {
            self.fault = Some(rustls::Error::General("too many records without data".to_owned()));
            self.check()?;
        }
        Ok(taken)
    }

    fn process(&mut self, carrier: &Stream) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        // Answers such as alerts go out at once if the socket takes them; otherwise with the next
        // bytes. That it takes nothing any more concerns the one who writes: what has come, such as
        // an early answer to a long body, is still read.
        _ = self.send(carrier);
        match processed {
            Ok(state) => {
                self.readable_bytes = state.plaintext_bytes_to_read();
                self.has_ended |= state.peer_has_closed();
                Ok(())
            }
            Err(fault) => {
                self.readable_bytes = 0;
                self.fault = Some(fault.clone());
                Err(invalid(fault))
            }
        }
    }

    /// Sends what is encrypted.
    fn send(&mut self, carrier: &Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Writer(carrier))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn say_end(&mut self) {
        if !std::mem::replace(&mut self.has_told_end, true) {
            self.connection.send_close_notify();
        }
    }
}

/// Runs `read` with the core's place of encrypted bytes, at most this many of it.
fn with_place<T>(most_bytes: usize, read: impl FnOnce(&mut [u8]) -> T) -> T {
    // Taken out, as the carrier may be a session too.
    let mut place = ENCRYPTED.take();
    place.resize(READ_BYTES_MAX, 0);
    let most = most_bytes.min(place.len());
    let result = read(place.get_mut(..most).unwrap_or_default());
    ENCRYPTED.set(place);
    result
}

/// The socket as a writer.
struct Writer<'a>(&'a Stream);

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match parts {
            // One record: a plain `send` is cheaper than a vectored write.
            [record] => self.0.try_write(record),
            _ => self.0.try_write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.tells_end.get() {
            let session = self.session.get_mut();
            session.say_end();
            // A server that is not told notices the end of the socket.
            _ = session.send(&self.carrier);
        }
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("carrier", &self.carrier).finish_non_exhaustive()
    }
}

/// Takes the side of the server on an accepted connection.
///
/// # Errors
/// Why there was no agreement.
pub async fn accept(carrier: Stream, side: &ServerSide) -> Result<Stream, Fault> {
    accept_with(carrier, &[], side).await
}

/// Takes the side of the server on a connection from which `early` has been read already: the
/// client's first message, and what has come with it.
///
/// # Errors
/// Why there was no agreement.
pub async fn accept_with(
    carrier: Stream,
    early: &[u8],
    side: &ServerSide,
) -> Result<Stream, Fault> {
    let connection = ServerConnection::new(side.config()).map_err(|error| Fault::from(&error))?;
    let stream = shake_hands(TlsStream::new(carrier, connection.into()), early).await?;
    match &stream {
        // Rules about it could not be answered.
        Stream::Tls(tls) if tls.has_unreadable_names() => {
            Err(Fault::Certificate(CertificateFault::Invalid))
        }
        _ => Ok(stream),
    }
}

/// Takes the side of the client on a connection to the server of `host`, whose certificate must
/// be for that name, or for the one of the settings.
///
/// # Errors
/// Why there was no agreement, or the fault of the certificate.
pub async fn connect(carrier: Stream, side: &ClientSide, host: &[u8]) -> Result<Stream, Fault> {
    let name = side.name_for(host).ok_or(Fault::NoName)?;
    let connection =
        ClientConnection::new(side.config(), name).map_err(|error| Fault::from(&error))?;
    let stream = shake_hands(TlsStream::new(carrier, connection.into()), &[]).await?;
    if let Stream::Tls(tls) = &stream {
        tls.note_proof(side, host, false);
    }
    Ok(stream)
}

/// A connection to a server that may have faults.
#[derive(Debug)]
pub struct Judged {
    /// The connection. [`Stream::tls`] has the server's identity too. If there are faults, nothing
    /// may be sent on it before each of them is forgiven.
    pub stream: Stream,
    /// The server, for rules and logs.
    pub server: Rc<ServerIdentity>,
    /// All that is wrong with its certificate, in the order of `server.faults`; none: it is as good
    /// as with [`connect`].
    pub faults: Vec<CertificateFault>,
}

/// As [`connect`]; but faults of the server's certificate do not end the connection: they are told,
/// so that rules can forgive them. Signatures of the handshake are verified in any case.
///
/// # Errors
/// Why there was no agreement.
pub async fn connect_lenient(
    carrier: Stream,
    side: &ClientSide,
    host: &[u8],
) -> Result<Judged, Fault> {
    let name = side.name_for(host).ok_or(Fault::NoName)?;
    let connection =
        ClientConnection::new(side.lenient_config(), name).map_err(|error| Fault::from(&error))?;
    let mut stream = shake_hands(TlsStream::new(carrier, connection.into()), &[]).await?;
    let Stream::Tls(tls) = &mut stream else { return Err(Fault::NotTls) };
    tls.note_proof(side, host, true);
    let Identified { identity, faults } = tls.identify(side, host)?;
    let server = Rc::new(identity);
    tls.server = Some(Rc::clone(&server));
    Ok(Judged { stream, server, faults })
}

async fn shake_hands(mut stream: Box<TlsStream>, early: &[u8]) -> Result<Stream, Fault> {
    let result = stream.shake_hands(early).await;
    match result {
        Ok(()) => Ok(Stream::Tls(stream)),
        Err(error) => {
            // An alert has told the reason.
            stream.leave_end_to_caller();
            Err(Fault::of_io(&error))
        }
    }
}

fn invalid(fault: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}

fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the connection was cut: TLS has not said that it ends")
        }
        _ => error,
    }
}

#[cfg(test)]
mod bump_tests;
#[cfg(test)]
mod tests;
