//! The interception of TLS.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["TLS interception" {
    /// What is done with TLS in the tunnels of ports with `ssl-bump`, and with the connections of
    /// an intercepted `https_port`. `splice`: a tunnel that nobody looks into. `bump`: the
    /// connection is decrypted with a certificate that is made for it. `peek` and `stare`: the next
    /// step comes first; then `peek` leads to `splice`, and `stare` to `bump`. `terminate`: the
    /// connection is closed. The rules are asked at each step (`at_step`), and those whose action
    /// is not possible there are left out. Without a rule that matches it is `bump` after `stare`,
    /// and otherwise `splice`; if a rule has no answer, the connection is closed. Old words are
    /// taken with a warning: `none` (`splice`), `client-first` (`bump` at the first step),
    /// `server-first` (`stare`, then `bump`). See docs/tls.md.
    ssl_bump: Vec<BumpRule> = BumpRules(""), "ssl_bump ACTION [!]ACL ...";
    /// Which faults of certificates of servers are forgiven. The list is asked for each fault
    /// (`ssl_error`). Then the client of a connection that is decrypted gets a certificate with the
    /// same fault, and answers are not cached. A client of an accelerator, and one that asks for an
    /// `https://` URL without a tunnel, is shown nothing. None without a rule that allows.
    sslproxy_cert_error: Vec<AccessRule> = Rules(""), "sslproxy_cert_error allow|deny [!]ACL ...";
    /// How certificates that are made here are signed: `signTrusted` by the port's authority,
    /// `signUntrusted` by one that nobody knows, `signSelf` by itself. Without a rule that matches,
    /// it is as the server's: only a certificate without faults leads to a trusted one.
    sslproxy_cert_sign: Vec<CertSignRule> = CertSignRules(""), "sslproxy_cert_sign ALGORITHM [!]ACL ...";
    /// How certificates that are made after a server's are changed: `setValidAfter` and
    /// `setValidBefore` take the end and the beginning of the authority's own,
    /// `setCommonName{NAME}` another common name; without a name that of CONNECT. Of each of the
    /// three, the first line that matches counts. Without one they are as the server's.
    sslproxy_cert_adapt: Vec<CertAdaptRule> = CertAdaptRules(""), "sslproxy_cert_adapt ALGORITHM [!]ACL ...";
    /// What is done where TLS is expected (tunnels of ports with `ssl-bump`, connections of an
    /// intercepted `https_port`) and something else comes: `tunnel` lets it pass unread, `respond`
    /// closes the connection, as without a rule that matches.
    on_unsupported_protocol: Vec<UnsupportedProtocolRule> = UnsupportedProtocolRules(""),
        "on_unsupported_protocol tunnel|respond [!]ACL ...";
    /// File with certificates of intermediate authorities, in PEM, that servers fail to send. They
    /// are not trusted by themselves.
    sslproxy_foreign_intermediate_certs: Option<String> = OptText("none"),
        "sslproxy_foreign_intermediate_certs FILE";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "TLS interception":
    Ignored("certificates are made in the process, and kept in memory (`dynamic_cert_mem_cache_size=`)") {
        "sslcrtd_program", "sslcrtd_program COMMAND", "Helper that generates certificates.";
        "sslcrtd_children", "sslcrtd_children NUMBER [OPTION ...]", "Number of those helpers.";
    }
    Ignored("certificates are signed with SHA-256, or with SHA-384 where the key is of P-384") {
        "sslproxy_cert_sign_hash", "sslproxy_cert_sign_hash NAME", "Digest used to sign generated certificates.";
    }
    Ignored("the library decides how many sessions with servers are remembered, and for how long") {
        "sslproxy_session_ttl", "sslproxy_session_ttl SECONDS", "Lifetime of TLS sessions.";
        "sslproxy_session_cache_size", "sslproxy_session_cache_size SIZE", "Memory for TLS sessions.";
    }
    Unsupported("no helper judges certificates of servers") {
        "sslcrtvalidator_program", "sslcrtvalidator_program COMMAND", "Helper that judges certificates of servers.";
        "sslcrtvalidator_children", "sslcrtvalidator_children NUMBER [OPTION ...]", "Number of those helpers.";
    }
    Ignored("the library computes on the processor, and uses its instructions for cryptography") {
        "ssl_engine", "ssl_engine NAME", "Hardware for cryptography.";
    }
    Unsupported("secrets of TLS sessions are written nowhere") {
        "tls_key_log", "tls_key_log PLACE [OPTION ...]", "Where secrets of TLS sessions are written for debugging.";
    }
};
