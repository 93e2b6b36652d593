//! The networks whose packets the kernel keeps for this machine, by netlink: its addresses, and
//! what else its table `local` has.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Most networks that are read of each family.
const LOCAL_ROUTES_MAX: usize = 65_536;

/// Largest part of an answer. The kernel fills at most 32 KiB of a buffer.
const PART_BYTES_MAX: usize = 32 << 10;

/// Most parts of an answer, in case the kernel tells routes of other tables too.
const ANSWER_PARTS_MAX: usize = 4096;

/// `RTM_GETROUTE` and `RTM_NEWROUTE`.
const GET: u16 = 26;
const ROUTE: u16 = 24;

/// `NLM_F_REQUEST | NLM_F_DUMP`, `NLMSG_ERROR` and `NLMSG_DONE`.
const REQUEST_ALL: u16 = 1 | 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// `RT_TABLE_LOCAL`, `RTN_LOCAL` and `RTN_ANYCAST`.
const TABLE_LOCAL: u8 = 255;
const LOCAL: u8 = 2;
const ANYCAST: u8 = 4;

/// `NLM_F_DUMP_INTR`: routes have changed meanwhile, and some may be missing.
const INTERRUPTED: u16 = 0x10;

/// `RTA_DST`.
const DESTINATION: u16 = 1;

/// `NETLINK_GET_STRICT_CHK`: the kernel looks at the table in the question.
const STRICT: libc::c_int = 12;

/// Bytes of netlink's head, and of the head of a route.
const HEAD_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;

/// A network: its first address, and the length of its prefix.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    /// Its first address.
    pub first: IpAddr,
    /// The length of its prefix, in bits.
    pub prefix: u8,
}

impl Network {
    /// Whether an address of the same family is in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (bits, xor) = match (self.first, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (32, u128::from(a.to_bits() ^ b.to_bits())),
            (IpAddr::V6(a), IpAddr::V6(b)) => (128, a.to_bits() ^ b.to_bits()),
            _ => return false,
        };
        let rest = bits - u32::from(self.prefix).min(bits);
        xor.checked_shr(rest).is_none_or(|differs| differs == 0)
    }
}

/// All networks of the table `local`: each address of this machine, also a second one of a network,
/// and networks that are all its own, such as 127.0.0.0/8. A few system calls.
///
/// # Errors
/// The kernel cannot be asked, or has more than can be kept.
pub fn local_networks() -> io::Result<Vec<Network>> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        match ask(family as u8, &mut all) {
            // There is no such table, or no such family.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                ) => {}
            other => other?,
        }
    }
    Ok(all)
}

/// Adds the networks of one family.
fn ask(family: u8, all: &mut Vec<Network>) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    be_strict(&socket);
    send(&socket, &question(family), SendFlags::empty())?;
    let most = all.len() + LOCAL_ROUTES_MAX;
    let mut part = vec![0; PART_BYTES_MAX];
    for _ in 0..ANSWER_PARTS_MAX {
        let (len, _) = recv(&socket, &mut part[..], RecvFlags::DONTWAIT)?;
        if read(part.get(..len).unwrap_or_default(), family, all)? {
            return Ok(());
        }
        if all.len() > most {
            break;
        }
    }
    Err(io::ErrorKind::OutOfMemory.into())
}

/// Asks for no routes of other tables, of which there may be a million. A kernel before 4.20 sends
/// them, and they are passed over.
#[allow(unsafe_code)]
fn be_strict(socket: &OwnedFd) {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the call reads `len` bytes of `on`.
    unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, STRICT, value, len);
    }
}

fn question(family: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + ROUTE_BYTES);
    out.extend_from_slice(&((HEAD_BYTES + ROUTE_BYTES) as u32).to_ne_bytes());
    out.extend_from_slice(&GET.to_ne_bytes());
    out.extend_from_slice(&REQUEST_ALL.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family, 0, 0, 0, TABLE_LOCAL, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// Reads the messages of a part. `true`: it was the last one.
fn read(mut part: &[u8], family: u8, all: &mut Vec<Network>) -> io::Result<bool> {
    while let Some(len) = number_at(part, 0) {
        let len = len as usize;
        let message = part.get(..len).filter(|_| len >= HEAD_BYTES);
        let message = message.ok_or(io::ErrorKind::InvalidData)?;
        let half = |at: usize| {
            let bytes = message.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u16::from_ne_bytes)
        };
        if half(6).is_some_and(|flags| flags & INTERRUPTED != 0) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match half(4) {
            Some(DONE) => return Ok(true),
            Some(ERROR) => {
                let errno = number_at(message, HEAD_BYTES).unwrap_or_default() as i32;
                return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
            }
            Some(ROUTE) => all.extend(network(message, family)),
            _ => {}
        }
        part = part.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The network of a message, if it is one of this machine.
fn network(message: &[u8], wanted: u8) -> Option<Network> {
    let route = message.get(HEAD_BYTES..HEAD_BYTES + ROUTE_BYTES)?;
    let [family, prefix, _, _, table, _, _, kind, ..] = *route else { return None };
    let is_local = table == TABLE_LOCAL && matches!(kind, LOCAL | ANYCAST);
    if family != wanted || !is_local {
        return None;
    }
    let attributes = message.get(HEAD_BYTES + ROUTE_BYTES..)?;
    let first = find(attributes, DESTINATION);
    let first = match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = first.map_or(Some([0; 4]), |first| first.try_into().ok())?;
            IpAddr::from(octets)
        }
        _ => {
            let octets: [u8; 16] = first.map_or(Some([0; 16]), |first| first.try_into().ok())?;
            IpAddr::from(octets)
        }
    };
    Some(Network { first, prefix })
}

/// A number of the machine's own byte order in a message.
fn number_at(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?))
}

/// The value of an attribute of this kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) == kind {
            return attributes.get(4..len);
        }
        attributes = attributes.get(len.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn loopback_is_local_and_examples_are_not() {
        let networks = local_networks().expect("an answer");
        let is_local = |text: &str| networks.iter().any(|network| network.contains(ip(text)));
        assert!(is_local("127.0.0.1") && is_local("127.9.9.9"), "{networks:?}");
        assert!(!is_local("192.0.2.1") && !is_local("2001:db8::1"), "{networks:?}");
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        let network = |first: &str, prefix| Network { first: ip(first), prefix };
        for (network, inside, outside) in [
            (network("10.0.0.4", 32), "10.0.0.4", "10.0.0.5"),
            (network("10.0.0.0", 8), "10.9.9.9", "11.0.0.0"),
            (network("0.0.0.0", 0), "203.0.113.1", "::1"),
            (network("::1", 128), "::1", "::2"),
            (network("fd00::", 8), "fdff::1", "fe00::1"),
            (network("::", 0), "2001:db8::1", "0.0.0.0"),
        ] {
            assert!(network.contains(ip(inside)), "{network:?}");
            assert!(!network.contains(ip(outside)), "{network:?}");
        }
    }

    #[test]
    fn messages_that_are_cut_short_are_errors_or_no_routes() {
        let mut all = Vec::new();
        let mut route = question(libc::AF_INET as u8);
        assert!(read(&route[..20], 2, &mut all).is_err());
        assert!(!read(&route[..3], 2, &mut all).expect("nothing"));
        route[4..6].copy_from_slice(&ROUTE.to_ne_bytes());
        route[6..8].copy_from_slice(&INTERRUPTED.to_ne_bytes());
        assert!(read(&route, 2, &mut all).is_err(), "not all of them");
        route[6..8].copy_from_slice(&[2, 0]);
        route[HEAD_BYTES + 7] = LOCAL;
        assert!(!read(&route, 2, &mut all).expect("a route"));
        assert_eq!(all, [Network { first: ip("0.0.0.0"), prefix: 0 }]);
        route[HEAD_BYTES + 4] = 254;
        assert!(!read(&route, 2, &mut all).expect("of another table") && all.len() == 1);
        route[0] = 1;
        assert!(read(&route, 2, &mut all).is_err());
    }
}
