//! One connection: bytes out, bytes in, without waiting.

use crate::answer::{Answer, AnswerReader};
use crate::chain::NONE;
use crate::expected::fault;
use crate::secure;
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_tls::{Channel, ChannelError, Got, Handshake, TlsError, Users};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Loss {
    /// The peer closed it in order.
    Ended,
    /// It closed it without the end of TLS.
    Cut,
    /// It is broken.
    Broken(ChannelError),
}

impl Loss {
    /// The consequence for an answer under way.
    pub(crate) fn outcome(self, reader: &mut AnswerReader) -> Result<Answer, Fault> {
        match self {
            Self::Ended => reader.end(false),
            Self::Cut => reader.end(true),
            Self::Broken(ChannelError::Handshake(why)) => Err(secure::fault(why)),
            Self::Broken(error @ ChannelError::Abandoned) => Err(secure::fault(error.to_string())),
            Self::Broken(error) => {
                let got = format!("{error} after {}", reader.progress());
                Err(fault(FaultKind::Disconnected, None, "an answer".into(), got))
            }
        }
    }
}

/// A connection of one user.
#[derive(Debug)]
pub(crate) struct Connection {
    channel: Channel,
    pub(crate) robot: u32,
    /// Index of the address that it goes to.
    pub(crate) target: usize,
    /// The request that it is busy with, or [`NONE`].
    pub(crate) ask: u32,
    /// Requests that it may still be used for.
    pub(crate) uses_left: u32,
    /// Complete answers so far.
    pub(crate) answers: u32,
    pub(crate) connecting: bool,
    /// It has become a tunnel.
    pub(crate) tunnelled: bool,
    /// Bytes for which the kernel had no room yet.
    unsent: Vec<u8>,
    pub(crate) reader: AnswerReader,
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn open(
        to: &SocketAddr,
        robot: u32,
        target: usize,
        uses: u32,
    ) -> Result<Self, Errno> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        // A request's last segment must not wait for the acknowledgement of the one before.
        sockopt::set_tcp_nodelay(&socket, true)?;
        let connecting = match net::connect(&socket, to) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(error) => return Err(error),
        };
        let reader = AnswerReader::default();
        let (ask, answers, unsent) = (NONE, 0, Vec::new());
        Ok(Self {
            channel: Channel::plain(socket),
            robot,
            target,
            ask,
            uses_left: uses,
            answers,
            connecting,
            tunnelled: false,
            unsent,
            reader,
        })
    }

    /// After the first event of a connection under way: how it ended.
    pub(crate) fn finish_connecting(&mut self) -> Result<(), Errno> {
        sockopt::socket_error(&self.channel)??;
        self.connecting = false;
        Ok(())
    }

    /// From here on it speaks TLS, with the server that `authority` names.
    pub(crate) fn begin_tls(
        &mut self,
        users: &mut Users,
        user: u32,
        authority: &str,
    ) -> Result<(), TlsError> {
        self.channel.begin_client(users, user, authority)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.channel.is_tls()
    }

    /// The kind of its handshake, once, when it is done.
    pub(crate) fn take_handshake(&mut self) -> Option<Handshake> {
        self.channel.take_handshake()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        let sent = self.channel.send(bytes)?;
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    /// Goes on with bytes for which the kernel had no room.
    pub(crate) fn send_rest(&mut self) -> Result<(), ChannelError> {
        self.channel.flush()?;
        while !self.unsent.is_empty() {
            let sent = self.channel.send(&self.unsent)?;
            if sent == 0 {
                break;
            }
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.unsent.is_empty() && self.channel.is_flushed()
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<Got, ChannelError> {
        let got = self.channel.receive(buffer)?;
        // A request that is longer than the room before the handshake goes on after it, and no
        // event tells of that.
        if self.channel.is_tls() && !self.unsent.is_empty() {
            self.send_rest()?;
        }
        Ok(got)
    }

    /// Whether the next bytes will come with an event of their own.
    pub(crate) fn has_drained(&self, got: usize, asked: usize) -> bool {
        self.channel.has_drained(got, asked)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
