//! Marks of the packets that a socket sends.

use std::io;
use std::os::fd::AsFd;
use std::sync::Once;

/// Marks of packets; 0 is the system's own.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketMarks {
    /// Type of service (DSCP).
    pub tos: u8,
    /// Netfilter mark.
    pub mark: u32,
}

impl PacketMarks {
    /// Sets them on a socket that has had the marks `before`. What the system refuses is left as it
    /// was, and a warning says so once.
    pub fn set(self, socket: impl AsFd, before: Self) {
        if self.tos != before.tos {
            static ONCE: Once = Once::new();
            let set = humboldt_sys::marks::set_tos(&socket, self.tos);
            warn_once(&ONCE, set, "a type of service");
        }
        if self.mark != before.mark {
            static ONCE: Once = Once::new();
            let set = humboldt_sys::marks::set_mark(&socket, self.mark);
            warn_once(&ONCE, set, "a netfilter mark");
        }
    }
}

fn warn_once(once: &Once, set: io::Result<()>, what: &str) {
    let Err(error) = set else { return };
    once.call_once(|| {
        let help = match error.kind() {
            io::ErrorKind::PermissionDenied => "; start as root, or with CAP_NET_ADMIN",
            _ => "",
        };
        tracing::warn!("packets cannot get {what}, and are sent without: {error}{help}");
    });
}
