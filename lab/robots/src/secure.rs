//! TLS on the way of a user's requests: with whom, and through which tunnel.

use crate::plan::{RobotsPlan, Route, TlsWay};
use crate::world::{Shared, World};
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_tls::TlsError;
use humboldt_lab_workload::{Ask, AskKind};
use std::net::SocketAddr;

/// The addresses of connections. A tunnel leads to one origin, so with tunnels there is a target
/// for each pair of a proxy and an origin.
pub(crate) fn targets(plan: &RobotsPlan, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if !plan.tls.as_ref().is_some_and(|tls| tls.way.has_tunnels()) {
        return addresses;
    }
    let origins = plan.origins.len();
    addresses.iter().flat_map(|address| std::iter::repeat_n(*address, origins)).collect()
}

/// The fault of a connection on which TLS did not begin.
pub(crate) fn fault(got: String) -> Fault {
    let expected = "a TLS handshake".into();
    Fault { kind: FaultKind::Handshake, offset: None, expected, got }
}

impl Shared {
    /// With whom users speak TLS, if they do.
    pub(crate) fn way(&self) -> Option<TlsWay> {
        self.plan.tls.as_ref().map(|tls| tls.way)
    }

    /// Whether every request goes through a tunnel.
    pub(crate) fn has_tunnels(&self) -> bool {
        self.way().is_some_and(TlsWay::has_tunnels)
    }

    /// The target of a request's connection.
    pub(crate) fn target_of(&self, ask: &Ask) -> usize {
        if !self.has_tunnels() {
            return ask.name.origin_index(self.targets.len());
        }
        let origins = self.origin_names.len();
        let proxies = self.targets.len() / origins;
        ask.name.origin_index(proxies) * origins + ask.name.origin_index(origins)
    }

    /// The tunnel that a request needs, and whether the proxy must allow it.
    pub(crate) fn tunnel_for(&self, ask: &Ask) -> Option<bool> {
        match ask.kind {
            AskKind::Connect { allowed } => Some(allowed),
            _ => self.has_tunnels().then_some(true),
        }
    }

    /// Whether a request is about the tunnel itself, so that one that is open is of no use.
    pub(crate) fn needs_new_connection(&self, ask: &Ask) -> bool {
        self.has_tunnels() && matches!(ask.kind, AskKind::Connect { .. })
    }
}

impl World {
    /// Begins TLS on a connection if it is time.
    pub(crate) fn secure(&mut self, connection: u32) -> Result<(), TlsError> {
        let (Some(users), Some(way)) = (self.users.as_mut(), self.shared.way()) else {
            return Ok(());
        };
        let Some(state) = self.connections.get_mut(connection) else { return Ok(()) };
        if state.is_tls() || (way.has_tunnels() && !state.tunnelled) {
            return Ok(());
        }
        let origins = &self.shared.origin_names;
        let name = match &self.shared.plan.route {
            Route::Accelerator { host, .. } => host.clone(),
            Route::Forward { .. } | Route::Direct => {
                String::from_utf8_lossy(&origins[state.target % origins.len()]).into_owned()
            }
        };
        state.begin_tls(users, state.robot, &name)
    }
}
