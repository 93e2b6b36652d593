//! Queries of other caches by the Internet Cache Protocol, version 2 (RFC 2186), and replies.

use std::io;
use std::net::SocketAddr;

use tokio::net::UdpSocket;

/// Largest message, in bytes, as in Squid. A longer datagram is cut off, and so refused.
pub const ICP_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the header.
const HEADER_BYTES: usize = 20;

/// Bytes of the requester's address before the URL of a query.
const REQUESTER_BYTES: usize = 4;

const VERSION: u8 = 2;

const OP_QUERY: u8 = 1;

/// The opcode of a reply.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The object is here.
    Hit = 2,
    /// It is not.
    Miss = 3,
    /// The query makes no sense.
    Error = 4,
    /// The sender may not ask.
    Denied = 22,
}

/// A query.
#[derive(Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Its number, which the reply repeats.
    pub number: u32,
    /// The URL.
    pub url: &'a [u8],
}

/// Reads a query; `None` for everything else. A message with another length than it says is none.
pub fn parse(message: &[u8]) -> Option<Query<'_>> {
    let header: &[u8; HEADER_BYTES] = message.first_chunk()?;
    let [OP_QUERY, VERSION, high, low, n0, n1, n2, n3, ..] = *header else { return None };
    if usize::from(u16::from_be_bytes([high, low])) != message.len() {
        return None;
    }
    let url = message.get(HEADER_BYTES + REQUESTER_BYTES..)?.strip_suffix(b"\0")?;
    let number = u32::from_be_bytes([n0, n1, n2, n3]);
    (!url.contains(&0)).then_some(Query { number, url })
}

/// The reply to a query. It is shorter than the query.
pub fn reply(opcode: Opcode, query: &Query<'_>) -> Vec<u8> {
    let bytes = HEADER_BYTES + query.url.len() + 1;
    let mut message = Vec::with_capacity(bytes);
    message.extend_from_slice(&[opcode as u8, VERSION]);
    message.extend_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes());
    message.extend_from_slice(&query.number.to_be_bytes());
    message.resize(HEADER_BYTES, 0);
    message.extend_from_slice(query.url);
    message.push(0);
    message
}

/// The socket on which queries come.
#[derive(Debug)]
pub struct IcpSocket(UdpSocket);

impl IcpSocket {
    /// Listens at this address.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        UdpSocket::bind(address).await.map(Self)
    }

    /// The next message: its length in `buffer`, and its sender.
    ///
    /// # Errors
    /// Those of the system: an earlier reply could not be delivered, for example.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.recv_from(buffer).await
    }

    /// Sends a reply, if the system takes it at once: as with all of ICP, it may be lost.
    pub fn send(&self, message: &[u8], to: SocketAddr) {
        _ = self.0.try_send_to(message, to);
    }

    /// The address that it has.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(url: &[u8]) -> Vec<u8> {
        let mut message = vec![OP_QUERY, VERSION, 0, 0, 0, 0, 0, 7];
        message.resize(HEADER_BYTES + REQUESTER_BYTES, 0);
        message.extend_from_slice(url);
        message.push(0);
        let bytes = u16::try_from(message.len()).expect("short").to_be_bytes();
        message[2..4].copy_from_slice(&bytes);
        message
    }

    #[test]
    fn a_query_and_its_reply() {
        let message = query(b"http://a.test/");
        let found = parse(&message).expect("a query");
        assert_eq!(found, Query { number: 7, url: b"http://a.test/" });
        let answer = reply(Opcode::Hit, &found);
        assert_eq!(answer[..8], [2, 2, 0, 35, 0, 0, 0, 7]);
        assert!(answer.ends_with(b"http://a.test/\0") && answer.len() == 35);
        assert!(answer.len() < message.len(), "nobody can use it to send more than it gets");
    }

    #[test]
    fn what_is_no_query_gets_no_reply() {
        let good = query(b"http://a.test/");
        for end in 0..good.len() {
            assert_eq!(parse(&good[..end]), None, "{end}");
        }
        let changed = |at: usize, to: u8| {
            let mut message = good.clone();
            message[at] = to;
            message
        };
        for (at, to) in [(0, 2), (0, 0), (1, 3), (3, 1), (good.len() - 1, b'x'), (30, 0)] {
            assert_eq!(parse(&changed(at, to)), None, "{at} {to}");
        }
    }
}
