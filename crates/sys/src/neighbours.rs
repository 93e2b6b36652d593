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

/// The EUI-48 (MAC) address of the machine at `ip`; `None` for one that is this machine by its
/// loopback address. A system call or a few. Kernels before 6.10 have one lock for them and for
/// changes of interfaces. The routes are read once in ten seconds.
///
/// # Errors
/// It cannot be told: the kernel does not know the address, or cannot be asked. That no route leads
/// to the machine without a gateway does not say that it is behind one: the routes may be of
/// another table, or older than its network.
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
        // Elsewhere there may be an entry of another machine that once had this address.
        let mut asked = self.routes.interfaces_to(ip);
        if asked.is_empty() {
            asked = self.routes.interfaces.iter().map(String::as_str).collect();
        }
        let address = asked.into_iter().find_map(|name| self.entry(name, ip));
        address.map(Some).ok_or_else(|| io::ErrorKind::NotFound.into())
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
}

/// Puts a name into a field that a zero ends.
fn put_name(field: &mut [libc::c_char; libc::IFNAMSIZ], name: &str) {
    let room = field.len() - 1;
    for (to, byte) in field.iter_mut().take(room).zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
}

/// The routes of the main table: where the kernel is asked first.
#[derive(Debug, Default)]
struct Routes {
    routes: Vec<Route>,
    /// The interfaces of all routes, each once.
    interfaces: Vec<String>,
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
    /// Lines that cannot be read, or have no room, are left out.
    fn parse(text: &str) -> Self {
        let mut routes = Self::default();
        text.lines().skip(1).for_each(|line| _ = routes.add(line));
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
    fn routes_that_cannot_be_read_are_left_out() {
        for line in ["eth0", "eth0 x 0 1 0 0 0 0", "eth0 0 0 0001 0 0 0 y 0"] {
            assert!(Routes::parse(&format!("Iface\n{line}\n")).routes.is_empty(), "{line}");
        }
        let many: String =
            (0..=INTERFACES_MAX).map(|n| format!("v{n} {n:x} 0 1 0 0 0 FFFFFFFF\n")).collect();
        let routes = Routes::parse(&format!("Iface\n{many}"));
        assert_eq!(
            (routes.routes.len(), routes.interfaces.len()),
            (INTERFACES_MAX, INTERFACES_MAX)
        );
    }

    #[test]
    fn a_machine_that_the_kernel_does_not_know_has_no_answer() {
        for far in [[203, 0, 113, 9], [198, 51, 100, 7]] {
            assert!(hardware_address(far.into()).is_err(), "{far:?}");
        }
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
