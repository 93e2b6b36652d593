//! Tickets of sessions that are good for one certificate only.

use std::sync::Arc;

use rustls::server::ProducesTickets;

use super::write::Contents;

/// The tickets of a port, bound to a certificate. A client whose session goes on sees no
/// certificate: it must not go on past one with a fault that the server has had since, or past
/// another name.
#[derive(Debug)]
pub(super) struct LeafTickets {
    all: Arc<dyn ProducesTickets>,
    leaf: Contents,
}

impl LeafTickets {
    pub(super) fn new(all: Arc<dyn ProducesTickets>, leaf: Contents) -> Self {
        Self { all, leaf }
    }
}

impl ProducesTickets for LeafTickets {
    fn enabled(&self) -> bool {
        self.all.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.all.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.all.encrypt(&[&self.leaf, plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.all.decrypt(cipher)?;
        if !plain.starts_with(&self.leaf) {
            return None;
        }
        plain.drain(..self.leaf.len());
        Some(plain)
    }
}
