//! The TLS of ports, of connections to servers, and of peers, compiled.

use humboldt_base::clock::UnixMillis;
use humboldt_conf::{Config, HttpPort, Location, TlsOutgoing};
use humboldt_tls::{BumpAuthority, ClientSide, OnDisk, ServerSide, SetupError, SetupProblem};

/// All TLS of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    ports: Vec<(HttpPort, ServerSide)>,
    /// Those of ports that make certificates.
    authorities: Vec<(HttpPort, BumpAuthority)>,
    /// The ports with `ssl-bump`.
    bumping: Vec<(HttpPort, ())>,
    /// `None`: `tls_outgoing_options disable`.
    outgoing: Option<ClientSide>,
    peers: Vec<(String, ClientSide)>,
}

impl Tls {
    /// Reads all files and compiles. Authorities of the `earlier` configuration whose lines and
    /// files are the same go on.
    ///
    /// # Errors
    /// Every line whose files cannot be used.
    pub(crate) fn compile(
        config: &Config,
        earlier: Option<&Self>,
    ) -> Result<Self, Vec<SetupError>> {
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
        let bumping = config.ports().filter(|port| port.bump.is_some());
        tls.bumping = bumping.map(|port| (port.clone(), ())).collect();
        for port in config.ports() {
            let Some(bump) = &port.bump else { continue };
            let before = earlier.and_then(|earlier| earlier.authority(port));
            match BumpAuthority::after(before, bump, &files) {
                Ok(authority) => {
                    let now_s = UnixMillis::now().secs();
                    for warning in authority.iter().flat_map(|one| one.warnings(now_s, &files)) {
                        tracing::warn!("{}: {warning}", bump.location);
                    }
                    tls.authorities.extend(authority.map(|authority| (port.clone(), authority)));
                }
                Err(problem) => note(&bump.location, problem),
            }
        }
        let options = &config.tls_outgoing_options;
        if !options.is_disabled {
            let side = ClientSide::new(options, &files);
            let side = match &config.sslproxy_foreign_intermediate_certs {
                Some(file) => side.and_then(|side| side.with_intermediates(file, &files)),
                None => side,
            };
            match side {
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
        find(&self.ports, port)
    }

    /// The authority of a port that makes certificates, in the same way.
    pub(crate) fn authority(&self, port: &HttpPort) -> Option<&BumpAuthority> {
        find(&self.authorities, port)
    }

    /// Whether a port has `ssl-bump`.
    pub(crate) fn bumps(&self, port: &HttpPort) -> bool {
        find(&self.bumping, port).is_some()
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

/// What a port has, although it may have been accepted on under an older configuration.
fn find<'a, T>(all: &'a [(HttpPort, T)], port: &HttpPort) -> Option<&'a T> {
    let path = |port: &HttpPort| port.unix.as_ref().map(|unix| unix.path.clone());
    let is_same = |other: &HttpPort| {
        (other.addr, &other.host, other.port) == (port.addr, &port.host, port.port)
            && path(other) == path(port)
    };
    all.iter().find(|(other, _)| is_same(other)).map(|(_, found)| found)
}
