//! The limit of a process's sockets.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one, and gives the limit that then holds.
/// Without any limit it gives `u64::MAX`.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    let now = if setrlimit(Resource::Nofile, limit).is_ok() { limit.maximum } else { before };
    now.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_at_least_what_it_was() {
        let first = super::raise_descriptor_limit();
        assert!(first >= 64);
        assert_eq!(super::raise_descriptor_limit(), first);
    }
}
