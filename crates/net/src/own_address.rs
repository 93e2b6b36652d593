//! Addresses of this machine.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_sys::local_routes::{Network, local_networks};
use parking_lot::{Mutex, RwLock};

/// The kernel is asked again after this time: addresses come and go seldom.
const OWN_AGE_MAX: Duration = Duration::from_secs(2);

/// What the kernel said last, for all cores.
static KNOWN: RwLock<Option<Known>> = RwLock::new(None);

/// Held by the one who asks.
static ASKING: Mutex<()> = Mutex::new(());

struct Known {
    networks: Arc<[Network]>,
    asked: Instant,
}

/// Whether `ip` is an address of this machine, also one that it got at most two seconds ago. Asks
/// the kernel at times, without sending anything.
///
/// If the kernel has never told its addresses, those count that a socket may have; and all, if
/// there is no descriptor left to find out.
pub fn is_own_address(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback()
        || ip.is_unspecified()
        || match networks() {
            Some(networks) => networks.iter().any(|network| network.contains(ip)),
            None => is_possible_source(ip),
        }
}

/// The networks of this machine; of those who find them old, one asks.
fn networks() -> Option<Arc<[Network]>> {
    let known = KNOWN.read();
    let old = known.as_ref().map(|known| Arc::clone(&known.networks));
    if known.as_ref().is_some_and(|known| known.asked.elapsed() < OWN_AGE_MAX) {
        return old;
    }
    drop(known);
    let asking = match old {
        Some(_) => ASKING.try_lock(),
        None => Some(ASKING.lock()),
    };
    if asking.is_none() {
        return old;
    }
    match local_networks() {
        Ok(networks) => {
            let networks: Arc<[Network]> = networks.into();
            let known = Known { networks: Arc::clone(&networks), asked: Instant::now() };
            *KNOWN.write() = Some(known);
            Some(networks)
        }
        // What was so is most likely still so.
        Err(_) => old,
    }
}

/// Whether a socket may have the address. A system that lets programs use foreign ones
/// (`ip_nonlocal_bind`) lets it have any.
fn is_possible_source(ip: IpAddr) -> bool {
    let bound = UdpSocket::bind((ip, 0));
    bound.map_or_else(|error| error.kind() != io::ErrorKind::AddrNotAvailable, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_own_and_an_example_is_not() {
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert!(is_own_address(own.parse().expect("an address")), "{own}");
        }
        for other in ["192.0.2.1", "198.51.100.7", "2001:db8::1"] {
            let ip = other.parse().expect("an address");
            assert!(!is_own_address(ip) && !is_possible_source(ip), "{other}");
        }
        assert!(is_possible_source("127.0.0.1".parse().expect("an address")));
    }
}
