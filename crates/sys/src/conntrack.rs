//! Marks of connections in the kernel's table of connections (netfilter's CONNMARK), by netlink.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `IPCTNL_MSG_CT_NEW` and `IPCTNL_MSG_CT_GET` of the subsystem `NFNL_SUBSYS_CTNETLINK`.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;

/// `NLM_F_REQUEST`, `NLM_F_ACK` and `NLMSG_ERROR`.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const ERROR: u16 = 2;

/// An attribute with attributes in it (`NLA_F_NESTED`).
const NESTED: u16 = 1 << 15;

/// The kind of an attribute, without its flags.
const KIND_MASK: u16 = 0x3fff;

/// Attributes of a connection: the packets of its client, and its mark.
const TUPLE_ORIG: u16 = 1;
const MARK: u16 = 8;

/// Attributes of those packets.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
const PROTO_NUMBER: u16 = 1;
const PORTS: [u16; 2] = [2, 3];
const TCP: u8 = 6;

/// Bytes of the heads of a message: netlink's and netfilter's.
const HEAD_BYTES: usize = 16;
const HEADS_BYTES: usize = HEAD_BYTES + 4;

/// Largest answer; one about a connection has a few hundred bytes.
const ANSWER_BYTES_MAX: usize = 8192;

/// Answers to earlier questions that are passed over.
const OLD_ANSWERS_MAX: usize = 16;

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// The mark of the TCP connection that `client` has opened to `server`, as the first packet had
/// them: before any packet filter of this machine changed them. Two system calls.
///
/// # Errors
/// The kernel does not follow this connection (`NotFound`), or may not be asked: that takes
/// CAP_NET_ADMIN.
pub fn mark(client: SocketAddr, server: SocketAddr) -> io::Result<u32> {
    ask(&Question { kind: GET, flags: REQUEST, client, server, mark: None })
}

/// Changes this mark.
///
/// # Errors
/// As for [`mark`].
pub fn set_mark(client: SocketAddr, server: SocketAddr, mark: u32) -> io::Result<()> {
    let flags = REQUEST | ACK;
    ask(&Question { kind: NEW, flags, client, server, mark: Some(mark) }).map(drop)
}

/// A message that asks about a connection, or changes its mark.
struct Question {
    kind: u16,
    flags: u16,
    client: SocketAddr,
    server: SocketAddr,
    mark: Option<u32>,
}

/// A socket to the kernel, and the number of the last question.
struct Kernel {
    socket: OwnedFd,
    number: u32,
    /// The last answer, of [`ANSWER_BYTES_MAX`].
    answer: Box<[u8]>,
}

/// Asks, and returns the mark in the answer; 0 if it has none.
fn ask(question: &Question) -> io::Result<u32> {
    KERNEL.with_borrow_mut(|kernel| {
        let open = match kernel.take() {
            Some(open) => open,
            None => Kernel::open()?,
        };
        let open = kernel.insert(open);
        let answer = open.ask(question);
        let is_told = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        };
        if answer.as_ref().is_err_and(|error| !is_told(error)) {
            *kernel = None;
        }
        answer
    })
}

impl Kernel {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket, number: 0, answer: vec![0; ANSWER_BYTES_MAX].into() })
    }

    /// Asks, and reads the answer, which is there when the question has been sent.
    fn ask(&mut self, question: &Question) -> io::Result<u32> {
        self.number = self.number.wrapping_add(1);
        send(&self.socket, &message(self.number, question), SendFlags::empty())?;
        for _ in 0..OLD_ANSWERS_MAX {
            let (len, _) = recv(&self.socket, &mut self.answer[..], RecvFlags::DONTWAIT)?;
            let answer = self.answer.get(..len).unwrap_or_default();
            if number_at(answer, 8) != Some(self.number) {
                continue;
            }
            let is_error = answer.get(4..6) == Some(&ERROR.to_ne_bytes());
            return match number_at(answer, HEAD_BYTES).filter(|_| is_error) {
                Some(errno) if errno != 0 => {
                    Err(io::Error::from_raw_os_error((errno as i32).wrapping_neg()))
                }
                _ => Ok(mark_in(answer)),
            };
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// The mark in an answer about a connection.
fn mark_in(answer: &[u8]) -> u32 {
    let body = answer.get(HEADS_BYTES..).unwrap_or_default();
    find(body, MARK).and_then(|value| value.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// A number of the machine's own byte order in a message.
fn number_at(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

/// The bytes of a message with this number.
fn message(number: u32, question: &Question) -> Vec<u8> {
    let &Question { kind, flags, client, server, mark } = question;
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&number.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    let family = if client.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    out.extend_from_slice(&[family as u8, 0, 0, 0]);
    nested(&mut out, TUPLE_ORIG, |out| {
        nested(out, TUPLE_IP, |out| {
            for (index, address) in [client, server].into_iter().enumerate() {
                match address {
                    SocketAddr::V4(v4) => attribute(out, V4[index], &v4.ip().octets()),
                    SocketAddr::V6(v6) => attribute(out, V6[index], &v6.ip().octets()),
                }
            }
        });
        nested(out, TUPLE_PROTO, |out| {
            attribute(out, PROTO_NUMBER, &[TCP]);
            for (index, address) in [client, server].into_iter().enumerate() {
                attribute(out, PORTS[index], &address.port().to_be_bytes());
            }
        });
    });
    if let Some(mark) = mark {
        attribute(&mut out, MARK, &mark.to_be_bytes());
    }
    let len = (out.len() as u32).to_ne_bytes();
    out[..4].copy_from_slice(&len);
    out
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = 4 + value.len();
    out.extend_from_slice(&(len as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn nested(out: &mut Vec<u8>, kind: u16, inside: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::with_capacity(64);
    inside(&mut value);
    attribute(out, kind | NESTED, &value);
}

/// The value of an attribute of this kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) & KIND_MASK == kind {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_its_length_and_both_ends() {
        let ends = ["192.0.2.1:1025", "198.51.100.7:80"].map(|end| end.parse().expect("an end"));
        let (flags, mark) = (REQUEST | ACK, Some(0x0102_0304));
        let [client, server] = ends;
        let message = message(9, &Question { kind: NEW, flags, client, server, mark });
        assert_eq!(number_at(&message, 0), Some(message.len() as u32));
        assert_eq!(number_at(&message, 8), Some(9));
        let body = &message[HEADS_BYTES..];
        assert_eq!(find(body, MARK), Some(&[1, 2, 3, 4][..]));
        let tuple = find(body, TUPLE_ORIG).expect("the tuple");
        let ip = find(tuple, TUPLE_IP).expect("addresses");
        assert_eq!(find(ip, V4[0]), Some(&[192, 0, 2, 1][..]));
        assert_eq!(find(ip, V4[1]), Some(&[198, 51, 100, 7][..]));
        let ports = find(tuple, TUPLE_PROTO).expect("ports");
        assert_eq!(find(ports, PORTS[0]), Some(&1025_u16.to_be_bytes()[..]));
        assert_eq!(find(ports, PORTS[1]), Some(&80_u16.to_be_bytes()[..]));
    }

    #[test]
    fn attributes_that_are_cut_short_are_not_found() {
        for bytes in [&[][..], &[8, 0, 8], &[0, 0, 1, 0], &[200, 0, 1, 0, 1, 2]] {
            assert_eq!(find(bytes, MARK), None, "{bytes:?}");
        }
        assert_eq!(find(&[200, 0, 8, 0, 1], MARK), None);
    }

    #[test]
    fn a_connection_that_the_kernel_does_not_follow_has_no_mark() {
        let end = "192.0.2.1:9".parse().expect("an address");
        assert!(mark(end, end).is_err());
    }
}
