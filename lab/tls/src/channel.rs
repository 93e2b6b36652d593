//! A socket without waiting: bytes out, bytes in, with TLS or without.
//!
//! The rule of edge-triggered sockets holds for both kinds: read until [`Got::NothingYet`], unless
//! [`Channel::has_drained`] says that a short read was the last. TLS has bytes of its own to send
//! (handshakes, alerts), so its user calls [`Channel::flush`] whenever there is room to write.

use crate::{ServerTls, TlsError, Trust, Users};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::{ClientConnection, Connection, HandshakeKind, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use thiserror::Error;

/// Bytes that a connection keeps in each direction for the handshake or for the kernel.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// This many bytes are at the beginning of the buffer.
    Bytes(usize),
    /// More may come, with an event of its own.
    NothingYet,
    /// The peer has sent its end.
    End,
    /// The connection ended without the end of TLS (close_notify): bytes may be missing that nobody
    /// knows of (RFC 9112, 9.8).
    Cut,
}

/// The kind of a handshake that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// With certificates and signatures.
    Full,
    /// The session of an earlier connection went on.
    Resumed,
}

/// Why a channel is broken.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// The kernel's error.
    #[error("{0}")]
    Socket(#[from] Errno),
    /// The peer went away before TLS began, without a reason.
    #[error("the peer closed during the handshake")]
    Abandoned,
    /// TLS did not begin: the reason, in the words of the library.
    #[error("{0}")]
    Handshake(String),
    /// What came later is not TLS as it should be.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

/// A connected socket that does not wait.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    session: Option<Box<Session>>,
}

#[derive(Debug)]
struct Session {
    tls: Connection,
    /// The handshake was told of.
    is_told: bool,
    /// Our end is on its way.
    is_shut: bool,
}

impl Channel {
    /// Without TLS.
    #[must_use]
    pub fn plain(socket: OwnedFd) -> Self {
        Self { socket, session: None }
    }

    /// Begins TLS as a client. `authority` is the host of the URL, which the server's certificate
    /// must name; `user` remembers sessions.
    ///
    /// # Errors
    ///
    /// No certificate can be for such a name.
    pub fn begin_client(
        &mut self,
        users: &mut Users,
        user: u32,
        authority: &str,
    ) -> Result<(), TlsError> {
        let name = Trust::server_name(authority)?;
        self.begin(Connection::Client(ClientConnection::new(users.of(user), name)?));
        Ok(())
    }

    /// Begins TLS as a server.
    ///
    /// # Errors
    ///
    /// The settings are not usable.
    pub fn begin_server(&mut self, server: &ServerTls) -> Result<(), TlsError> {
        self.begin(Connection::Server(ServerConnection::new(server.config.clone())?));
        Ok(())
    }

    fn begin(&mut self, mut tls: Connection) {
        tls.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        self.session = Some(Box::new(Session { tls, is_told: false, is_shut: false }));
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// The kind of the handshake, once, when it is done.
    pub fn take_handshake(&mut self) -> Option<Handshake> {
        let session = self.session.as_mut()?;
        if session.is_told || session.tls.is_handshaking() {
            return None;
        }
        session.is_told = true;
        Some(match session.tls.handshake_kind()? {
            HandshakeKind::Resumed => Handshake::Resumed,
            HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => Handshake::Full,
        })
    }

    /// Takes as many of the bytes as there is room for, and returns how many. Before the handshake
    /// is done they wait for it.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, ChannelError> {
        let Some(session) = &mut self.session else { return Ok(send_some(&self.socket, bytes)?) };
        session.flush(&self.socket)?;
        // Writes to memory, and there a full buffer is a short write.
        let taken = session.tls.writer().write(bytes).unwrap_or(0);
        session.flush(&self.socket)?;
        Ok(taken)
    }

    /// Sends what TLS still has to send; whether all is with the kernel.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn flush(&mut self) -> Result<bool, ChannelError> {
        self.session.as_mut().map_or(Ok(true), |session| session.flush(&self.socket))
    }

    /// Whether all that was taken is with the kernel.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.session.as_ref().is_none_or(|session| !session.tls.wants_write())
    }

    /// Reads once, or as often as TLS needs to give a byte.
    ///
    /// # Errors
    ///
    /// The connection is broken, or the handshake failed.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Got, ChannelError> {
        if let Some(session) = &mut self.session {
            return session.receive(&self.socket, buffer);
        }
        loop {
            return match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => Ok(Got::End),
                Ok((count, _)) => Ok(Got::Bytes(count)),
                Err(Errno::WOULDBLOCK) => Ok(Got::NothingYet),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Whether a read of `got` bytes into a buffer of `asked` bytes was the last before the next
    /// event. Bytes of TLS may be in memory, so there only [`Got::NothingYet`] is the last.
    #[must_use]
    pub fn has_drained(&self, got: usize, asked: usize) -> bool {
        self.session.is_none() && got < asked
    }

    /// Sends our end, after all that was taken; whether it is with the kernel. If not, it is to be
    /// called again when there is room.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub fn shut(&mut self) -> Result<bool, ChannelError> {
        if let Some(session) = &mut self.session {
            if !std::mem::replace(&mut session.is_shut, true) {
                session.tls.send_close_notify();
            }
            if !session.flush(&self.socket)? {
                return Ok(false);
            }
        }
        shutdown(&self.socket, Shutdown::Write)?;
        Ok(true)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Session {
    fn flush(&mut self, socket: &OwnedFd) -> Result<bool, ChannelError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Kernel(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(true)
    }

    fn receive(&mut self, socket: &OwnedFd, buffer: &mut [u8]) -> Result<Got, ChannelError> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(0) => return Ok(Got::End),
                Ok(count) => return Ok(Got::Bytes(count)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Got::Cut),
                Err(_) => {}
            }
            match self.tls.read_tls(&mut Kernel(socket)) {
                Ok(0) if self.tls.is_handshaking() => return Err(ChannelError::Abandoned),
                Ok(_) => self.understand(socket)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Got::NothingYet),
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    fn understand(&mut self, socket: &OwnedFd) -> Result<(), ChannelError> {
        let was_handshaking = self.tls.is_handshaking();
        let outcome = self.tls.process_new_packets();
        // Also an alert, which tells the peer why.
        let flushed = self.flush(socket);
        match outcome {
            Err(error) if was_handshaking => Err(ChannelError::Handshake(error.to_string())),
            Err(error) => Err(ChannelError::Tls(error)),
            Ok(_) => flushed.map(drop),
        }
    }
}

/// The socket as the library wants it.
struct Kernel<'s>(&'s OwnedFd);

impl Read for Kernel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match send_some(self.0, bytes)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands bytes to the kernel; 0 if it takes none now.
fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::WOULDBLOCK) => return Ok(0),
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

fn broken(error: &io::Error) -> ChannelError {
    ChannelError::Socket(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;
    use std::os::unix::net::UnixStream;

    fn names() -> Vec<String> {
        vec!["127.0.0.1".to_owned(), "www.lab.example".to_owned()]
    }

    fn pair() -> (Channel, Channel) {
        let (one, two) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        two.set_nonblocking(true).unwrap();
        (Channel::plain(one.into()), Channel::plain(two.into()))
    }

    /// Goes on at both ends until the client has got `wanted` bytes, or one end fails.
    fn exchange(
        client: &mut Channel,
        server: &mut Channel,
        bytes: &[u8],
    ) -> Result<Vec<u8>, ChannelError> {
        let (mut buffer, mut got, mut sent) = ([0; 5000], Vec::new(), 0);
        client.send(b"?")?;
        let mut is_asked = false;
        while got.len() < bytes.len() {
            match server.receive(&mut buffer)? {
                Got::Bytes(count) => is_asked |= count > 0,
                Got::NothingYet => {}
                Got::End | Got::Cut => panic!("no end yet"),
            }
            server.flush()?;
            if is_asked {
                sent += server.send(&bytes[sent..])?;
            }
            match client.receive(&mut buffer)? {
                Got::Bytes(count) => got.extend_from_slice(&buffer[..count]),
                Got::NothingYet => {}
                Got::End | Got::Cut => panic!("no end yet"),
            }
        }
        Ok(got)
    }

    #[test]
    fn bytes_pass_whole_and_users_resume_only_their_own_sessions() {
        let authority = Authority::new("the test's authority").unwrap();
        let server_tls = authority.issue(&names()).unwrap().server().unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7) as u8).collect();
        let trust = Trust::from_pem(authority.certificate_pem(), true).unwrap();
        let mut users = trust.users();
        let handshakes = |users: &mut Users, user| {
            let (mut client, mut server) = pair();
            client.begin_client(users, user, "127.0.0.1:99").unwrap();
            server.begin_server(&server_tls).unwrap();
            assert_eq!(exchange(&mut client, &mut server, &bytes).unwrap(), bytes);
            assert!(server.shut().unwrap() && client.is_flushed());
            assert_eq!(client.receive(&mut [0; 9]).unwrap(), Got::End);
            let kinds = [client.take_handshake(), server.take_handshake()];
            assert_eq!(kinds[0], kinds[1]);
            assert_eq!(client.take_handshake(), None, "it is told once");
            kinds[0]
        };
        assert_eq!(handshakes(&mut users, 1), Some(Handshake::Full));
        assert_eq!(handshakes(&mut users, 1), Some(Handshake::Resumed));
        assert_eq!(handshakes(&mut users, 2), Some(Handshake::Full));
        let mut forgetful = Trust::from_pem(authority.certificate_pem(), false).unwrap().users();
        assert_eq!(handshakes(&mut forgetful, 1), Some(Handshake::Full));
        assert_eq!(handshakes(&mut forgetful, 1), Some(Handshake::Full));
    }

    #[test]
    fn a_wrong_authority_and_a_wrong_name_are_refused_with_the_reason() {
        let (own, other) = (Authority::new("own").unwrap(), Authority::new("other").unwrap());
        let server_tls = own.issue(&names()).unwrap().server().unwrap();
        for (authority, host, reason) in
            [(&other, "127.0.0.1", "UnknownIssuer"), (&own, "127.0.0.2", "not valid for name")]
        {
            let (mut client, mut server) = pair();
            let mut users = Trust::from_pem(authority.certificate_pem(), true).unwrap().users();
            client.begin_client(&mut users, 0, host).unwrap();
            server.begin_server(&server_tls).unwrap();
            let error = exchange(&mut client, &mut server, b"secret").unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ChannelError::Handshake(_)), "{error:?}");
            assert!(text.contains(reason), "{text}");
            let alert = server.receive(&mut [0; 9]).unwrap_err();
            assert!(matches!(alert, ChannelError::Handshake(_)), "{alert:?}");
        }
    }

    #[test]
    fn a_connection_that_is_cut_has_not_ended() {
        let authority = Authority::new("the test's authority").unwrap();
        let server_tls = authority.issue(&names()).unwrap().server().unwrap();
        let mut users = Trust::from_pem(authority.certificate_pem(), true).unwrap().users();
        for (in_order, end) in [(true, Got::End), (false, Got::Cut)] {
            let (mut client, mut server) = pair();
            client.begin_client(&mut users, 0, "127.0.0.1").unwrap();
            server.begin_server(&server_tls).unwrap();
            assert_eq!(exchange(&mut client, &mut server, b"half").unwrap(), b"half");
            if in_order {
                assert!(server.shut().unwrap());
            }
            drop(server);
            assert_eq!(client.receive(&mut [0; 9]).unwrap(), end);
        }
        // One that goes away during the handshake has refused nothing.
        let (mut client, mut server) = pair();
        client.begin_client(&mut users, 1, "127.0.0.1").unwrap();
        server.begin_server(&server_tls).unwrap();
        assert_eq!(server.receive(&mut [0; 9]).unwrap(), Got::NothingYet);
        drop(client);
        let gone = server.receive(&mut [0; 9]).unwrap_err();
        assert!(matches!(gone, ChannelError::Abandoned), "{gone:?}");
    }

    #[test]
    fn without_tls_a_short_read_is_the_last() {
        let (mut client, mut server) = pair();
        assert_eq!(exchange(&mut client, &mut server, b"plain").unwrap(), b"plain");
        assert!(client.has_drained(5, 10) && !client.has_drained(10, 10) && !client.is_tls());
        assert_eq!(client.take_handshake(), None);
    }
}
