//! Hardware addresses of machines on the networks of this one, from the kernel's neighbour table.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The kernel's IPv4 routes as text.
const ROUTES_PATH: &str = "/proc/net/route";

/// Most bytes of the routes that are read: about 2000 routes.
const ROUTES_BYTES_MAX: u64 = 256 << 10;

/// Most interfaces that are asked about one address.
const INTERFACES_MAX: usize = 64;

/// The routes are read again after this time: interfaces come and go seldom.
const ROUTES_AGE_MAX: Duration = Duration::from_secs(10);

/// `RTF_UP`, `RTF_GATEWAY` and `RTF_REJECT` of a route.
const ROUTE_UP: u32 = 0x1;
const ROUTE_GATEWAY: u32 = 0x2;
const ROUTE_REJECT: u32 = 0x200;

/// `ATF_COM`: the entry has an address.
const ENTRY_IS_COMPLETE: i32 = 0x2;

thread_local! {
    static TABLE: RefCell<Option<Table>> = const { RefCell::new(None) };
}

/// The EUI-48 (MAC) address of the machine at `ip`; `None` for one that is not on a network of
/// ours. A system call or a few, none of which waits. The routes are read once in ten seconds.
///
/// # Errors
/// It cannot be told: the machine is on a network of ours, but the kernel does not know its
/// address, or the kernel cannot be asked.
pub fn hardware_address(ip: Ipv4Addr) -> io::Result<Option<[u8; 6]>> {
    if ip.is_loopback() || ip.is_unspecified() {
        return Ok(None);
    }
    TABLE.with_borrow_mut(|table| {
        if table.as_ref().is_none_or(|table| table.read.elapsed() > ROUTES_AGE_MAX) {
            *table = Some(Table::read()?);
        }
        table.as_ref().map_or(Ok(None), |table| table.find(ip))
    })
}

/// What a thread needs to ask the kernel.
struct Table {
    socket: OwnedFd,
    routes: Routes,
    read: Instant,
}

impl Table {
    fn read() -> io::Result<Self> {
        let mut text = String::new();
        File::open(ROUTES_PATH)?.take(ROUTES_BYTES_MAX).read_to_string(&mut text)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, routes: Routes::parse(&text), read: Instant::now() })
    }

    fn find(&self, ip: Ipv4Addr) -> io::Result<Option<[u8; 6]>> {
        let near = self.routes.interfaces_to(ip);
        let others = self.routes.interfaces.iter().filter(|one| !near.contains(&one.as_str()));
        for name in near.iter().copied().chain(others.map(String::as_str)) {
            if let Some(address) = self.entry(name, ip) {
                return Ok(Some(address));
            }
        }
        let is_here = !self.routes.is_whole || near.iter().any(|name| self.has_neighbours(name));
        match is_here {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(None),
        }
    }

    /// The entry of `ip` in the table of an Ethernet interface, if it is complete.
    #[allow(unsafe_code)]
    fn entry(&self, interface: &str, ip: Ipv4Addr) -> Option<[u8; 6]> {
        // SAFETY: all fields are integers, for which zeros are valid.
        let mut request: libc::arpreq = unsafe { std::mem::zeroed() };
        put_name(&mut request.arp_dev, interface);
        request.arp_pa.sa_family = libc::AF_INET as libc::sa_family_t;
        // In a `sockaddr_in` the port comes before the address.
        for (to, byte) in request.arp_pa.sa_data.iter_mut().skip(2).zip(ip.octets()) {
            *to = byte as libc::c_char;
        }
        let descriptor = self.socket.as_raw_fd();
        // SAFETY: the descriptor is open, and the call writes nothing but the `arpreq`.
        let result = unsafe { libc::ioctl(descriptor, libc::SIOCGARP as _, &raw mut request) };
        let is_known = result == 0
            && request.arp_flags & ENTRY_IS_COMPLETE != 0
            && request.arp_ha.sa_family == libc::ARPHRD_ETHER;
        let [a, b, c, d, e, f, ..] = request.arp_ha.sa_data;
        is_known.then_some([a, b, c, d, e, f].map(|byte| byte as u8))
    }

    /// Whether machines on this interface have hardware addresses: not so in tunnels.
    #[allow(unsafe_code)]
    fn has_neighbours(&self, interface: &str) -> bool {
        // SAFETY: all fields are integers or unions with integers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        put_name(&mut request.ifr_name, interface);
        let descriptor = self.socket.as_raw_fd();
        // SAFETY: the descriptor is open, and the call writes nothing but the `ifreq`.
        let result = unsafe { libc::ioctl(descriptor, libc::SIOCGIFFLAGS as _, &raw mut request) };
        // SAFETY: this is the field that the call fills in; before it, all are zeros.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        result != 0 || flags & (libc::IFF_NOARP | libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT) == 0
    }
}

/// Puts a name into a field that a zero ends.
fn put_name(field: &mut [libc::c_char; libc::IFNAMSIZ], name: &str) {
    let room = field.len() - 1;
    for (to, byte) in field.iter_mut().take(room).zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
}

/// The routes of the main table.
#[derive(Debug, Default)]
struct Routes {
    routes: Vec<Route>,
    /// The interfaces of all routes, each once.
    interfaces: Vec<String>,
    /// None was left out.
    is_whole: bool,
}

#[derive(Debug)]
struct Route {
    /// Its place in `interfaces`.
    interface: usize,
    network: u32,
    mask: u32,
    /// Machines of the network are reached without a gateway.
    is_direct: bool,
}

impl Routes {
    fn parse(text: &str) -> Self {
        let is_whole = (text.len() as u64) < ROUTES_BYTES_MAX;
        let mut routes = Self { is_whole, ..Self::default() };
        for line in text.lines().skip(1) {
            if routes.add(line).is_none() {
                routes.is_whole = false;
            }
        }
        routes
    }

    /// Adds the route of a line; `None` if there is no reading it, or no room.
    fn add(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, network, _, flags, _, _, _, mask, ..] = *words else { return None };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let (network, mask) = (address(network)?, address(mask)?);
        if flags & ROUTE_UP == 0 || flags & ROUTE_REJECT != 0 {
            return Some(());
        }
        let known = self.interfaces.iter().position(|known| known == name);
        let interface = match known {
            Some(at) => at,
            None if self.interfaces.len() < INTERFACES_MAX => {
                self.interfaces.push(name.to_owned());
                self.interfaces.len() - 1
            }
            None => return None,
        };
        let is_direct = flags & ROUTE_GATEWAY == 0;
        self.routes.push(Route { interface, network, mask, is_direct });
        Some(())
    }

    /// The interfaces on whose networks `ip` is, by the most specific routes.
    fn interfaces_to(&self, ip: Ipv4Addr) -> Vec<&str> {
        let ip = u32::from(ip);
        let matching = || self.routes.iter().filter(|route| ip & route.mask == route.network);
        let mask = matching().map(|route| route.mask).max();
        let best = matching().filter(|route| Some(route.mask) == mask && route.is_direct);
        best.filter_map(|route| self.interfaces.get(route.interface)).map(String::as_str).collect()
    }
}

/// An address as the kernel prints it here: the four bytes of memory as one number.
fn address(hexadecimal: &str) -> Option<u32> {
    let number = u32::from_str_radix(hexadecimal, 16).ok()?;
    Some(u32::from_be_bytes(number.to_ne_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The routes of a machine on two networks, with a tunnel and a default route.
    fn routes() -> Routes {
        let rows = [
            ("eth0", "0.0.0.0", "10.0.0.1", "0.0.0.0", 3),
            ("eth0", "10.0.0.0", "0.0.0.0", "255.255.255.0", 1),
            ("eth0", "10.0.0.64", "10.0.0.2", "255.255.255.192", 3),
            ("eth1", "192.168.0.0", "0.0.0.0", "255.255.0.0", 1),
            ("br0", "192.168.0.0", "0.0.0.0", "255.255.0.0", 1),
            ("eth2", "172.16.0.0", "0.0.0.0", "255.255.0.0", 0),
            ("*", "172.17.0.0", "0.0.0.0", "255.255.0.0", 0x201),
        ];
        let hex = |text: &str| {
            let ip: Ipv4Addr = text.parse().expect("an address");
            format!("{:08X}", u32::from_ne_bytes(ip.octets()))
        };
        let mut text =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n".to_owned();
        for (name, network, gateway, mask, flags) in rows {
            let (network, gateway, mask) = (hex(network), hex(gateway), hex(mask));
            text +=
                &format!("{name}\t{network}\t{gateway}\t{flags:04X}\t0\t0\t0\t{mask}\t0\t0\t0\n");
        }
        Routes::parse(&text)
    }

    #[test]
    fn a_machine_is_on_the_networks_of_the_most_specific_routes_without_a_gateway() {
        let routes = routes();
        assert!(routes.is_whole);
        for (ip, wanted) in [
            ("10.0.0.7", &["eth0"][..]),
            ("10.0.0.65", &[]),
            ("10.0.1.1", &[]),
            ("192.168.3.4", &["eth1", "br0"]),
            ("172.16.0.1", &[]),
            ("172.17.0.1", &[]),
            ("198.51.100.1", &[]),
        ] {
            assert_eq!(routes.interfaces_to(ip.parse().expect("an address")), wanted, "{ip}");
        }
        assert_eq!(routes.interfaces, ["eth0", "eth1", "br0"]);
    }

    #[test]
    fn routes_that_cannot_be_read_leave_it_open_who_is_near() {
        for line in ["eth0", "eth0 x 0 1 0 0 0 0", "eth0 0 0 0001 0 0 0 y 0"] {
            assert!(!Routes::parse(&format!("Iface\n{line}\n")).is_whole, "{line}");
        }
        let many: String =
            (0..=INTERFACES_MAX).map(|n| format!("v{n} {n:x} 0 1 0 0 0 FFFFFFFF\n")).collect();
        let routes = Routes::parse(&format!("Iface\n{many}"));
        assert_eq!((routes.is_whole, routes.interfaces.len()), (false, INTERFACES_MAX));
    }

    #[test]
    fn the_kernel_says_the_same_as_its_own_list() {
        assert_eq!(hardware_address(Ipv4Addr::LOCALHOST).expect("told"), None);
        let list = std::fs::read_to_string("/proc/net/arp").unwrap_or_default();
        for line in list.lines().skip(1) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [ip, "0x1", "0x2", wanted, _, _] = *words else { continue };
            let ip = ip.parse().expect("an address");
            // The entry may have been replaced since.
            let Ok(Some(address)) = hardware_address(ip) else { continue };
            assert_eq!(address.map(|byte| format!("{byte:02x}")).join(":"), wanted, "{ip}");
        }
    }
}
