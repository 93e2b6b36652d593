//! One connection: bytes out, bytes in, without waiting.

use crate::answer::AnswerReader;
use crate::chain::NONE;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;

/// A connection of one user.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
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

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Bytes(usize),
    NothingYet,
    End,
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
            socket,
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
        sockopt::socket_error(&self.socket)??;
        self.connecting = false;
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let sent = send_some(&self.socket, bytes)?;
        if sent < bytes.len() {
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    /// Goes on with bytes for which the kernel had no room.
    pub(crate) fn send_rest(&mut self) -> Result<(), Errno> {
        while !self.unsent.is_empty() {
            let sent = send_some(&self.socket, &self.unsent)?;
            if sent == 0 {
                break;
            }
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.unsent.is_empty()
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Got, Errno> {
        loop {
            return match net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => Ok(Got::End),
                Ok((count, _)) => Ok(Got::Bytes(count)),
                Err(Errno::WOULDBLOCK) => Ok(Got::NothingYet),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error),
            };
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::WOULDBLOCK) => return Ok(0),
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}
