//! The ports to listen on: opened by the main thread, one socket for each core, handed over at
//! start and when the configuration changes.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use humboldt_conf::{Config, HttpPort, PortMode};
use humboldt_net::listener::{self, ListenError, PortSocket};
use parking_lot::Mutex;

/// The address of a port: two configurations' ports with the same one are the same socket.
type Place = (Option<IpAddr>, u16);

/// One `http_port`, open.
struct OpenPort {
    place: Place,
    port: Arc<HttpPort>,
    /// The sockets that their cores have not taken yet.
    sockets: Vec<Option<PortSocket>>,
}

/// A port on which one core should listen.
pub(crate) struct CorePort {
    /// Identifies the socket across reconfigurations.
    pub place: (Option<IpAddr>, u16),
    /// Its settings, which may have changed.
    pub port: Arc<HttpPort>,
    /// The socket, if the core does not have it already.
    pub socket: Option<PortSocket>,
}

fn is_tproxy(port: &HttpPort) -> bool {
    port.mode == PortMode::Tproxy
}

/// All open ports.
pub(crate) struct Ports {
    open: Mutex<Vec<OpenPort>>,
    cores: usize,
}

impl Ports {
    /// Opens the ports of a configuration.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub(crate) fn open(config: &Config, cores: usize) -> Result<Self, ListenError> {
        let ports = Self { open: Mutex::new(Vec::new()), cores };
        for (place, port) in places(config) {
            ports.add(place, port)?;
        }
        Ok(ports)
    }

    fn add(&self, place: Place, port: Arc<HttpPort>) -> Result<(), ListenError> {
        let sockets = listener::bind(place.0, place.1, self.cores, is_tproxy(&port))?;
        self.open.lock().push(OpenPort {
            place,
            port,
            sockets: sockets.into_iter().map(Some).collect(),
        });
        Ok(())
    }

    /// Closes ports that a new configuration no longer has, opens new ones, keeps the others. One
    /// that cannot be opened is reported and left out.
    pub(crate) fn reconfigure(&self, config: &Config) {
        let wanted: HashMap<Place, Arc<HttpPort>> = places(config).into_iter().collect();
        self.open.lock().retain(|open| wanted.contains_key(&open.place));
        for (place, port) in wanted {
            let mut open = self.open.lock();
            match open.iter_mut().find(|open| open.place == place) {
                Some(known) if is_tproxy(&known.port) != is_tproxy(&port) => {
                    let port = place.1;
                    tracing::error!(
                        "port {port}: `tproxy` begins and ends with a restart; it stays as it was"
                    );
                }
                Some(known) => known.port = port,
                None => {
                    drop(open);
                    if let Err(error) = self.add(place, port) {
                        tracing::error!("{error}; the port is left out");
                    }
                }
            }
        }
    }

    /// The ports on which core `index` should listen now.
    pub(crate) fn of_core(&self, index: usize) -> Vec<CorePort> {
        let mut open = self.open.lock();
        open.iter_mut()
            .map(|open| CorePort {
                place: open.place,
                port: Arc::clone(&open.port),
                socket: open.sockets.get_mut(index).and_then(Option::take),
            })
            .collect()
    }

    /// The ports as a person would write them.
    pub(crate) fn describe(&self) -> Vec<String> {
        let show = |open: &OpenPort| match open.place {
            (Some(IpAddr::V6(ip)), port) => format!("[{ip}]:{port}"),
            (Some(ip), port) => format!("{ip}:{port}"),
            (None, port) => format!("*:{port}"),
        };
        self.open.lock().iter().map(show).collect()
    }
}

/// The sockets that a configuration asks for. A port with a host name listens on that name's first
/// address.
fn places(config: &Config) -> Vec<(Place, Arc<HttpPort>)> {
    let mut places = Vec::new();
    for port in config.ports() {
        let found = port.host.as_deref().map(|host| {
            (host, port.port).to_socket_addrs().ok().and_then(|mut found| found.next())
        });
        let resolved = match found {
            // Listening on every address would be more than the file allows.
            Some(None) => {
                tracing::error!(
                    "http_port {}: the name does not resolve; the port is not opened",
                    port.name
                );
                continue;
            }
            found => found.flatten().map(|address| address.ip()),
        };
        let ipv4_any = port.ipv4_only.then_some(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        let ip = port.addr.or(resolved).or(ipv4_any);
        places.push(((ip, port.port), Arc::new(port.clone())));
    }
    places
}
