//! The TLS of ports, of connections to servers, and of peers, compiled.

use humboldt_conf::{Config, HttpPort, Location, TlsOutgoing};
use humboldt_tls::{ClientSide, OnDisk, ServerSide, SetupError, SetupProblem};

/// All TLS of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    ports: Vec<(HttpPort, ServerSide)>,
    /// `None`: `tls_outgoing_options disable`.
    outgoing: Option<ClientSide>,
    peers: Vec<(String, ClientSide)>,
}

impl Tls {
    /// Reads all files and compiles.
    ///
    /// # Errors
    /// Every line whose files cannot be used.
    pub(crate) fn compile(config: &Config) -> Result<Self, Vec<SetupError>> {
        let (mut tls, files) = (Self::default(), OnDisk::default());
        let mut errors = Vec::new();
        let mut note = |location: &Location, problem: SetupProblem| {
            errors.push(SetupError { location: location.clone(), problem });
        };
        for port in &config.https_port {
            let Some(options) = &port.tls else { continue };
            match ServerSide::new(options, &files) {
                Ok(side) => tls.ports.push((port.clone(), side)),
                Err(problem) => note(&options.location, problem),
            }
        }
        let options = &config.tls_outgoing_options;
        if !options.is_disabled {
            match ClientSide::new(options, &files) {
                Ok(side) => tls.outgoing = Some(side),
                Err(problem) => note(&options.location, problem),
            }
        }
        for peer in &config.cache_peer {
            let Some(options) = &peer.tls else { continue };
            // As in Squid, the name of a peer is that of its host.
            let name = options.name.clone().unwrap_or_else(|| peer.host.clone());
            let options = TlsOutgoing { name: Some(name), ..TlsOutgoing::clone(options) };
            match ClientSide::new(&options, &files) {
                Ok(side) => tls.peers.push((peer.name.clone(), side)),
                Err(problem) => note(&options.location, problem),
            }
        }
        if errors.is_empty() { Ok(tls) } else { Err(errors) }
    }

    /// The settings of a port. They are those of this configuration, even if the port was accepted
    /// on under an older one.
    pub(crate) fn port(&self, port: &HttpPort) -> Option<&ServerSide> {
        let path = |port: &HttpPort| port.unix.as_ref().map(|unix| unix.path.clone());
        let is_same = |other: &HttpPort| {
            (other.addr, &other.host, other.port) == (port.addr, &port.host, port.port)
                && path(other) == path(port)
        };
        self.ports.iter().find(|(other, _)| is_same(other)).map(|(_, side)| side)
    }

    /// The settings towards servers; `None` if there is to be no TLS.
    pub(crate) fn outgoing(&self) -> Option<&ClientSide> {
        self.outgoing.as_ref()
    }

    /// The settings towards a peer, if it has TLS.
    pub(crate) fn peer(&self, name: &str) -> Option<&ClientSide> {
        self.peers.iter().find(|(peer, _)| peer == name).map(|(_, side)| side)
    }
}
