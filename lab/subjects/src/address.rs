//! The address on which a subject will listen.
//!
//! A subject binds its port by itself, some time after the laboratory has chosen it. Meanwhile the
//! kernel may give a port of its ephemeral range to any other program. So a port is chosen outside
//! that range, where there is one, and a name in the kernel keeps it from other laboratories.

use crate::SubjectError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ports to choose from, the best first: above the usual ephemeral range, where hardly any program
/// has its usual port, and then below it. Those in the ephemeral range are left out.
const PORTS: [RangeInclusive<u16>; 2] = [49_152..=65_535, 10_000..=49_151];

/// Ports that are tried in each of them, and given by the kernel if there are none outside of its
/// range.
const ATTEMPTS: usize = 1000;

/// The kernel's file with its ephemeral range, for both versions of IP.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// That range where the file cannot be read: the kernel's default.
const EPHEMERAL_USUALLY: RangeInclusive<u16> = 32_768..=60_999;

/// An address for one subject.
#[derive(Clone, Debug)]
pub(crate) struct HeldAddress {
    address: SocketAddr,
    /// Bound to the name of the port for as long as the port is ours.
    _name: Arc<UnixDatagram>,
}

impl HeldAddress {
    /// The wanted address; with port 0, one with a port that is not in use.
    pub(crate) fn choose(wanted: SocketAddr) -> Result<Self, SubjectError> {
        let fails = |error: io::Error| {
            let what = format!("the subject cannot listen at {wanted} ({error})");
            SubjectError::Environment(match error.kind() {
                ErrorKind::AddrInUse if wanted.port() != 0 => {
                    format!("{what}: choose another port")
                }
                _ => what,
            })
        };
        if wanted.port() != 0 {
            return Self::hold(wanted, can_be_used).map_err(fails);
        }
        let text = fs::read_to_string(EPHEMERAL).unwrap_or_default();
        Self::any(wanted, &ephemeral(&text)).map_err(fails)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Some free port, which is not one of `ephemeral` if possible.
    fn any(wanted: SocketAddr, ephemeral: &RangeInclusive<u16>) -> io::Result<Self> {
        for ports in PORTS {
            if let Some(held) = Self::outside(wanted, ephemeral, ports)? {
                return Ok(held);
            }
        }
        let mut last = io::Error::from(ErrorKind::AddrInUse);
        for _ in 0..ATTEMPTS {
            let address = TcpListener::bind(wanted)?.local_addr()?;
            match Self::hold(address, can_be_used) {
                Err(error) if is_taken(&error) => last = error,
                outcome => return outcome,
            }
        }
        Err(last)
    }

    /// A free one of these ports that is not one of `ephemeral`; `None` if none was found.
    fn outside(
        wanted: SocketAddr,
        ephemeral: &RangeInclusive<u16>,
        ports: RangeInclusive<u16>,
    ) -> io::Result<Option<Self>> {
        let ports: Vec<u16> = ports.filter(|port| !ephemeral.contains(port)).collect();
        // Not always the same ones first: other programs may hold them, or be about to bind them.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let first = usize::try_from(now / 1000 % ports.len().max(1) as u128).unwrap_or(0);
        for &port in ports.iter().cycle().skip(first).take(ports.len().min(ATTEMPTS)) {
            let mut address = wanted;
            address.set_port(port);
            match Self::hold(address, is_unused) {
                Err(error) if is_taken(&error) => {}
                outcome => return outcome.map(Some),
            }
        }
        Ok(None)
    }

    /// This address, if no other laboratory holds its port, at whatever address, and it passes this
    /// test. The name comes first: the test itself would disturb a subject of the other one.
    fn hold(address: SocketAddr, test: fn(SocketAddr) -> io::Result<()>) -> io::Result<Self> {
        let name = LocalAddr::from_abstract_name(format!("humboldt-lab-port-{}", address.port()))?;
        let name = Arc::new(UnixDatagram::bind_addr(&name)?);
        test(address)?;
        Ok(Self { address, _name: name })
    }
}

/// Whether a program with `SO_REUSEADDR` can listen there, as nearly all servers.
fn can_be_used(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

/// Whether every program can: without `SO_REUSEADDR`, not while packets of old connections may
/// still come.
fn is_unused(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok(bind(socket, &address)?)
}

/// Whether another port may do.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}

/// The ports that the kernel gives to programs that do not ask for one, of the text of
/// [`EPHEMERAL`].
fn ephemeral(text: &str) -> RangeInclusive<u16> {
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => EPHEMERAL_USUALLY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// Waits for it. A process that another test just starts may hold a socket for a moment.
    fn until<T>(what: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(found) = what() {
                return found;
            }
            assert!(Instant::now() < deadline, "in vain");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_port_in_use_is_said_before_anything_starts() {
        let taken = TcpListener::bind(ANY).expect("a port");
        let address = taken.local_addr().expect("an address");
        let refused = || HeldAddress::choose(address).expect_err("it is taken").to_string();
        let error = refused();
        assert!(
            error.contains(&address.to_string()) && error.contains("choose another port"),
            "{error}"
        );
        drop(taken);
        let held = until(|| HeldAddress::choose(address).ok());
        assert_eq!(held.address(), address);
        let error = refused();
        assert!(error.contains("choose another port"), "the subject has yet to listen: {error}");
    }

    #[test]
    fn an_address_of_another_machine_is_no_question_of_ports() {
        let far = SocketAddr::from(([192, 0, 2, 1], 0));
        let error = HeldAddress::choose(far).expect_err("it is not ours").to_string();
        assert!(error.contains("192.0.2.1:0") && !error.contains("choose another"), "{error}");
    }

    #[test]
    fn a_chosen_port_is_given_to_nobody_else() {
        // A range with few ports left, so that they run out. Others may use some of them.
        let few = || HeldAddress::outside(ANY, &EPHEMERAL_USUALLY, 60_900..=61_100).expect("works");
        let mut ours: Vec<HeldAddress> = std::iter::from_fn(few).take(102).collect();
        let ports: BTreeSet<u16> = ours.iter().map(|held| held.address().port()).collect();
        assert!(ports.len() == ours.len() && (2..=101).contains(&ours.len()), "{ports:?}");
        assert!(ports.first() > Some(EPHEMERAL_USUALLY.end()), "{ports:?}");
        drop(ours.pop());
        until(few);
    }

    #[test]
    fn the_best_port_is_outside_of_the_ephemeral_range() {
        let port = |ephemeral| HeldAddress::any(ANY, &ephemeral).expect("a port").address().port();
        assert!(port(EPHEMERAL_USUALLY) > 60_999);
        assert!((10_000..20_000).contains(&port(20_000..=65_535)));
        assert_ne!(port(1024..=65_535), 0, "where there is none the kernel is asked");
        let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0));
        match HeldAddress::any(six, &EPHEMERAL_USUALLY) {
            Ok(held) => assert!(held.address().is_ipv6() && held.address().port() > 60_999),
            Err(error) => assert!(!is_taken(&error), "there may be no IPv6 here: {error}"),
        }
    }

    #[test]
    fn the_ephemeral_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(ephemeral("1024\t65535\n"), 1024..=65_535);
        for odd in ["", "1024", "x 1", "1 70000"] {
            assert_eq!(ephemeral(odd), EPHEMERAL_USUALLY, "{odd}");
        }
    }
}
