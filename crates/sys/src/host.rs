//! The machine.

/// Its host name; empty when it is not valid UTF-8.
pub fn name() -> String {
    rustix::system::uname().nodename().to_str().map(str::to_owned).unwrap_or_default()
}
