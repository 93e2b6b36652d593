//! The ports to listen on: opened by the main thread, one socket for each core, handed over at
//! start and when the configuration changes.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use humboldt_conf::{Config, HttpPort, PortMode, UnixPlace};
use humboldt_net::listener::{self, ListenError, PortSocket};
use humboldt_net::unix_socket::{self, Rights, SocketFile};
use humboldt_sys::privileges;
use parking_lot::Mutex;

/// The place of a port: two configurations' ports with the same one are the same socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// Address and port; any address.
    Tcp(Option<IpAddr>, u16),
    /// A file.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    /// As a person would write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(Some(IpAddr::V6(ip)), port) => write!(f, "[{ip}]:{port}"),
            Self::Tcp(Some(ip), port) => write!(f, "{ip}:{port}"),
            Self::Tcp(None, port) => write!(f, "*:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// See [`ListenError`].
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// `user=` or `group=` is nobody.
    #[error("unix:{}: {source}", path.display())]
    Owner {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: privileges::PrivilegeError,
    },
}

/// One `http_port`, open.
struct OpenPort {
    place: Place,
    port: Arc<HttpPort>,
    /// Removed when the port is closed.
    _file: Option<SocketFile>,
    /// The sockets that their cores have not taken yet.
    sockets: Vec<Option<PortSocket>>,
}

/// A port on which one core should listen.
pub(crate) struct CorePort {
    /// Identifies the socket across reconfigurations.
    pub place: Place,
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
    /// The user that the program runs as, with its group: the owner of Unix sockets that name none.
    owner: Option<(u32, u32)>,
}

impl Ports {
    /// Opens the ports of a configuration. `owner` is the user, with its group, that this process
    /// becomes.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub(crate) fn open(
        config: &Config,
        cores: usize,
        owner: Option<(u32, u32)>,
    ) -> Result<Self, PortError> {
        let ports = Self { open: Mutex::new(Vec::new()), cores, owner };
        for (place, port) in places(config) {
            ports.add(place, port)?;
        }
        Ok(ports)
    }

    fn add(&self, place: Place, port: Arc<HttpPort>) -> Result<(), PortError> {
        let (sockets, file) = match (&place, &port.unix) {
            (Place::Unix(path), Some(unix)) => {
                let rights = self.rights(unix)?;
                let (sockets, file) = unix_socket::bind(path, rights, self.cores)?;
                (sockets, Some(file))
            }
            (Place::Tcp(ip, number), _) => {
                (listener::bind(*ip, *number, self.cores, is_tproxy(&port))?, None)
            }
            (Place::Unix(_), None) => return Ok(()),
        };
        let sockets = sockets.into_iter().map(Some).collect();
        self.open.lock().push(OpenPort { place, port, _file: file, sockets });
        Ok(())
    }

    fn rights(&self, unix: &UnixPlace) -> Result<Rights, PortError> {
        let (mut user, mut group) = self.owner.unzip();
        let failed = |source| PortError::Owner { path: unix.path.clone(), source };
        let found = match (&unix.user, &unix.group) {
            (None, None) => None,
            (Some(name), group) => Some(privileges::find(name, group.as_deref())),
            (None, Some(group)) => {
                let own = user.unwrap_or_else(privileges::own_user).to_string();
                Some(privileges::find(&own, Some(group)))
            }
        };
        if let Some(found) = found.transpose().map_err(failed)? {
            (user, group) = (Some(found.uid), Some(found.gid));
        }
        Ok(Rights { mode: unix.mode, owner: user.zip(group) })
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
                    tracing::error!(
                        "port {place}: `tproxy` begins and ends with a restart; it stays as it was"
                    );
                }
                Some(known) => {
                    if known.port.unix != port.unix {
                        tracing::error!(
                            "port {place}: `mode`, `user` and `group` begin with a restart; they \
                             stay as they were"
                        );
                    }
                    known.port = port;
                }
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
                place: open.place.clone(),
                port: Arc::clone(&open.port),
                socket: open.sockets.get_mut(index).and_then(Option::take),
            })
            .collect()
    }

    /// Removes the files of Unix sockets, because listening ends.
    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }

    /// The ports as a person would write them.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.open.lock().iter().map(|open| open.place.to_string()).collect()
    }
}

/// The sockets that a configuration asks for. A port with a host name listens on that name's first
/// address.
fn places(config: &Config) -> Vec<(Place, Arc<HttpPort>)> {
    let mut places = Vec::new();
    for port in config.ports() {
        if let Some(unix) = &port.unix {
            places.push((Place::Unix(unix.path.clone()), Arc::new(port.clone())));
            continue;
        }
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
        places.push((Place::Tcp(ip, port.port), Arc::new(port.clone())));
    }
    places
}
