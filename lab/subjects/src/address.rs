//! The address on which a subject will listen.

use crate::SubjectError;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ports that need no privilege and that no program is given by chance. Below 10,000 there are many
/// well-known services.
const PORTS: RangeInclusive<u16> = 10_000..=65_535;
/// Ports that are tried before the kernel is asked for one.
const ATTEMPTS: u32 = 1000;

/// An address for one subject.
///
/// A subject binds its port by itself, some time after the laboratory has chosen it. The kernel
/// may give a port of its ephemeral range to any other program in between, so the port is outside
/// that range; and a name in the kernel keeps it from other laboratories.
#[derive(Clone, Debug)]
pub(crate) struct HeldAddress {
    address: SocketAddr,
    /// Bound to the name of the port for as long as the port is ours.
    _name: Option<Arc<UnixDatagram>>,
}

impl HeldAddress {
    /// The wanted address; with port 0, one with a port that is not in use.
    pub(crate) fn choose(wanted: SocketAddr) -> Result<Self, SubjectError> {
        if wanted.port() == 0
            && let Some(held) = Self::outside(&ephemeral_ports(), wanted)
        {
            return Ok(held);
        }
        let fails = |error| {
            SubjectError::Environment(format!(
                "the subject cannot listen at {wanted} ({error}): choose another port"
            ))
        };
        let listener = TcpListener::bind(wanted).map_err(fails)?;
        Ok(Self { address: listener.local_addr().map_err(fails)?, _name: None })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A free port of [`PORTS`] that is not one of `ephemeral`; none where there are none left.
    fn outside(ephemeral: &RangeInclusive<u16>, wanted: SocketAddr) -> Option<Self> {
        let ports: Vec<u16> = PORTS.filter(|port| !ephemeral.contains(port)).collect();
        // Any port will do. Not always the same one: connections of a subject that has ended may
        // wait for their last packets, and some programs cannot listen on their port meanwhile.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let first = usize::try_from(now / 1000 % ports.len().max(1) as u128).unwrap_or(0);
        let ports = ports.iter().cycle().skip(first).take(ports.len());
        ports.take(ATTEMPTS as usize).find_map(|&port| {
            let name = LocalAddr::from_abstract_name(format!("humboldt-lab-port-{port}")).ok()?;
            let name = UnixDatagram::bind_addr(&name).ok()?;
            let address = SocketAddr::new(wanted.ip(), port);
            TcpListener::bind(address).ok()?;
            Some(Self { address, _name: Some(Arc::new(name)) })
        })
    }
}

/// The ports that the kernel gives to programs that do not ask for one.
fn ephemeral_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => 32_768..=60_999,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn a_port_in_use_is_said_before_anything_starts() {
        let taken = TcpListener::bind(ANY).expect("a port");
        let address = taken.local_addr().expect("an address");
        let error = HeldAddress::choose(address).expect_err("it is taken").to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("choose another port"),
            "{error}"
        );
        drop(taken);
        // A process that another test just starts may hold the listener for a moment.
        let deadline = Instant::now() + Duration::from_secs(10);
        while HeldAddress::choose(address).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(HeldAddress::choose(address).expect("it is free").address(), address);
    }

    #[test]
    fn a_chosen_port_is_given_to_nobody_else() {
        let ephemeral = ephemeral_ports();
        let held = HeldAddress::choose(ANY).expect("a port");
        assert!(!ephemeral.contains(&held.address().port()), "{held:?}");
        // A range with few ports left, so that they run out. Others may use some of them.
        let all_but_few = PORTS.start() + 100..=*PORTS.end();
        let mut ours: Vec<HeldAddress> =
            std::iter::from_fn(|| HeldAddress::outside(&all_but_few, ANY)).collect();
        let ports: BTreeSet<u16> = ours.iter().map(|held| held.address().port()).collect();
        assert!(ports.len() == ours.len() && ours.len() > 1, "{ours:?}");
        drop(ours.pop());
        assert!(HeldAddress::outside(&all_but_few, ANY).is_some(), "one is free again");
    }

    #[test]
    fn where_every_port_is_ephemeral_the_kernel_is_asked() {
        assert!(HeldAddress::outside(&(1024..=65_535), ANY).is_none());
        assert!(HeldAddress::outside(&PORTS, ANY).is_none());
    }
}
