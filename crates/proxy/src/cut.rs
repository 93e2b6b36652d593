//! Why connections to clients are cut off: one table for the log, the counters and the manager's
//! pages.

use humboldt_exchange::{ClientLost, ResetReason, TunnelOver};
use humboldt_store::AbortReason;

macro_rules! cuts {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $error:expr, $reset:ident;)+) => {
        /// Why a connection ended before its answer was complete, or without any.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Cut { $($(#[doc = $doc])+ $variant,)+ }

        impl Cut {
            /// All reasons, in the order of their declaration.
            pub const ALL: &[Cut] = &[$(Cut::$variant,)+];

            /// The name in the metrics, on the manager's page, and as `%err_detail`.
            pub const fn name(self) -> &'static str {
                match self { $(Cut::$variant => $name,)+ }
            }

            /// The value of `%err_code`: Squid's name if it has one; `None` if the cut is no error.
            pub const fn error(self) -> Option<&'static str> {
                match self { $(Cut::$variant => $error,)+ }
            }

            /// The reason that the client gets, if its protocol can tell why an answer ends.
            pub(crate) const fn reset_reason(self) -> ResetReason {
                match self { $(Cut::$variant => ResetReason::$reset,)+ }
            }

            /// An explanation in one line, from the doc comment of the reason.
            pub fn help(self) -> &'static str {
                match self { $(Cut::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

cuts! {
    /// The client closed or reset its connection.
    ClientGone = "client_gone", Some("ERR_CLIENT_GONE"), Cancelled;
    /// The client took nothing of its answer for `write_timeout`.
    ClientStalled = "client_stalled", Some("ERR_CLIENT_GONE"), Cancelled;
    /// The connection had been open for `client_lifetime`.
    Lifetime = "client_lifetime", Some("ERR_LIFETIME_EXP"), Cancelled;
    /// A rule said so: `deny_info TCP_RESET`.
    Denied = "deny_info", Some("ERR_ACCESS_DENIED"), Cancelled;
    /// The body of the answer was longer than `reply_body_max_size`.
    ReplyTooLarge = "reply_too_large", Some("ERR_TOO_BIG"), Cancelled;
    /// The client had used up its budget of bytes (`client_budget`).
    OverBudget = "over_budget", Some("ERR_OVER_BUDGET"), Cancelled;
    /// The server closed its connection in the middle of its answer.
    ServerTruncated = "server_truncated", Some("ERR_READ_ERROR"), Failed;
    /// The connection to the server broke in the middle of its answer.
    ServerFailed = "server_failed", Some("ERR_READ_ERROR"), Failed;
    /// The server sent nothing more of its answer for `read_timeout`.
    ServerTimedOut = "server_timed_out", Some("ERR_READ_TIMEOUT"), Failed;
    /// The rest of the server's answer was not HTTP.
    ServerMalformed = "server_malformed", Some("ERR_INVALID_RESP"), Failed;
    /// The task or the core that fetched the answer for several clients has ended before them. This
    /// is a fault of the program, which cache.log reports, or the proxy is being shut down.
    FetchEnded = "fetch_ended", Some("ERR_INTERNAL"), Failed;
    /// The client took nothing for 15 s while others who share its fetch waited for it, and the
    /// rest could not be had in another way.
    HeldUp = "client_held_up_others", Some("ERR_CLIENT_GONE"), Cancelled;
    /// There was no memory for the rest of the answer.
    NoMemory = "no_memory", Some("ERR_INTERNAL"), Failed;
    /// The rest of the answer could not be read from its cache directory.
    DiskFailed = "disk_failed", Some("ERR_INTERNAL"), Failed;
    /// Nothing moved in a tunnel for a minute, for `read_timeout` if that is longer, or for 10 s
    /// after the client's FIN.
    TunnelIdle = "tunnel_idle", Some("ERR_READ_TIMEOUT"), Cancelled;
    /// One side of a tunnel was reset, which is how many programs end theirs.
    TunnelBroken = "tunnel_broken", None, Cancelled;
    /// A reconfiguration has brought rules that refuse the tunnel (`close_refused_tunnels`).
    Refused = "rules_changed", Some("ERR_ACCESS_DENIED"), Cancelled;
    /// The rules of a reconfiguration had no answer for 30 s (`close_refused_tunnels`).
    Unanswered = "rules_unanswered", Some("ERR_ACCESS_UNDECIDED"), Cancelled;
    /// A rule of `ssl_bump` said `terminate`, or had no answer.
    Terminated = "ssl_bump_terminate", None, Cancelled;
    /// `ssl_bump` had to choose by the certificate of a server that did not show it: TLS 1.3, a
    /// session that is resumed, or an alert.
    CertificateHidden = "certificate_hidden", Some("ERR_SECURE_CONNECT_FAIL"), Failed;
    /// The bytes in a tunnel that is intercepted were no TLS (`on_unsupported_protocol`).
    NotTls = "tunnel_without_tls", Some("ERR_PROTOCOL_UNKNOWN"), Failed;
    /// The client of a tunnel that is intercepted did not agree on TLS, or not in time. Clients
    /// that do not trust the authority of the port end here.
    NoHandshake = "no_client_handshake", Some("ERR_SECURE_ACCEPT_FAIL"), Failed;
    /// No certificate could be made for a tunnel that was to be decrypted.
    NoCertificate = "no_certificate", Some("ERR_SECURE_ACCEPT_FAIL"), Failed;
    /// The client of a tunnel that was to be decrypted had come with as many new names as one may
    /// in a second, and others of its connections were waiting for certificates already.
    TooManyCertificates = "too_many_certificates", Some("ERR_SECURE_ACCEPT_FAIL"), Failed;
    /// There was no way to the server of a tunnel that its client had been promised.
    NoServer = "tunnel_without_server", Some("ERR_CONNECT_FAIL"), Failed;
    /// The proxy was shut down, and `shutdown_lifetime` was over.
    ShutDown = "shut_down", Some("ERR_SHUTTING_DOWN"), Failed;
    /// A fault of the program: cache.log has a line about a panic.
    Panicked = "panicked", Some("ERR_INTERNAL"), Failed;
}

impl Cut {
    /// The reason why a task was dropped before its end. Call it while the task is being dropped.
    pub(crate) fn of_a_dropped_task() -> Self {
        if std::thread::panicking() { Self::Panicked } else { Self::ShutDown }
    }
}

impl From<ClientLost> for Cut {
    fn from(lost: ClientLost) -> Self {
        match lost {
            ClientLost::Gone => Self::ClientGone,
            ClientLost::Stalled => Self::ClientStalled,
            ClientLost::Lifetime => Self::Lifetime,
            ClientLost::ShutDown => Self::ShutDown,
        }
    }
}

impl From<TunnelOver> for Cut {
    fn from(over: TunnelOver) -> Self {
        match over {
            TunnelOver::Lifetime => Self::Lifetime,
            TunnelOver::Idle => Self::TunnelIdle,
            TunnelOver::Broken => Self::TunnelBroken,
            TunnelOver::Refused => Self::Refused,
            TunnelOver::Metered => Self::OverBudget,
        }
    }
}

impl From<AbortReason> for Cut {
    fn from(reason: AbortReason) -> Self {
        match reason {
            AbortReason::Cancelled | AbortReason::NotShareable => Self::FetchEnded,
            AbortReason::NoMemory => Self::NoMemory,
            AbortReason::TimedOut => Self::ServerTimedOut,
            AbortReason::Truncated => Self::ServerTruncated,
            AbortReason::Malformed => Self::ServerMalformed,
            AbortReason::TooLarge => Self::ReplyTooLarge,
            AbortReason::Failed => Self::ServerFailed,
            AbortReason::DiskFailed => Self::DiskFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own_and_a_sentence() {
        let mut names: Vec<_> = Cut::ALL.iter().map(|cut| cut.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Cut::ALL.len());
        assert!(Cut::ALL.iter().enumerate().all(|(index, cut)| *cut as usize == index));
        assert!(Cut::ALL.iter().all(|cut| cut.help().ends_with('.')
            && cut.error().is_none_or(|error| error.starts_with("ERR_"))));
    }
}
