//! What a port with TLS asks of its clients, when a connection begins and later.
//!
//! A reconfiguration may ask more: another authority, a newer list of revocations, a newer version
//! of TLS. A connection from before goes on until its next answer, which closes it, so that the
//! client has to meet the new demands.

use std::cell::Cell;

use humboldt_conf::HttpPort;
use humboldt_tls::ServerSide;

use crate::config::snapshot::Snapshot;

/// The demands that a connection has met.
#[derive(Clone, Debug)]
pub(crate) struct Demands {
    met: u64,
    /// Up to which generation of the configuration they are known to be the same.
    same_until: Cell<u64>,
}

impl Demands {
    /// Those of a port's side, which is that of this generation of the configuration.
    pub(crate) fn of(generation: u64, side: &ServerSide) -> Self {
        Self { met: side.demands(), same_until: Cell::new(generation) }
    }

    /// Whether the port asks for something else now.
    pub(crate) fn differ(&self, snapshot: &Snapshot, port: &HttpPort) -> bool {
        let generation = snapshot.generation();
        if generation == self.same_until.get() {
            return false;
        }
        if demanded(snapshot, port) != self.met {
            return true;
        }
        self.same_until.set(generation);
        false
    }
}

/// A number for the demands of the port; 0 if it has no TLS any more.
fn demanded(snapshot: &Snapshot, port: &HttpPort) -> u64 {
    snapshot.tls.port(port).map_or(0, ServerSide::demands)
}
