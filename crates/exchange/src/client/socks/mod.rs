//! SOCKS5 (RFC 1928): a client asks for a tunnel to a host, as with CONNECT, and its request
//! becomes just that. BIND and UDP ASSOCIATE are refused: both would be ways in, which no rule of
//! HTTP is about.

mod handshake;
mod wire;

use humboldt_http::ResponseHead;

use super::h1::{After, H1Client};
use crate::head::{ReplyHead, collect_unruled};

pub(crate) use handshake::{Begun, begin};
use wire::Code;

/// How a port speaks SOCKS5.
#[derive(Copy, Clone, Debug)]
pub struct SocksSettings {
    /// HTTP is not spoken.
    pub only: bool,
    /// Clients may log in with user name and password, and rules may ask for that.
    pub has_logins: bool,
}

/// The form of a refusal, which depends on what the client waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing: it does not speak SOCKS5.
    Stranger,
    /// The choice of a method.
    Greeting,
    /// The answer to its login.
    Login,
    /// The reply to its request; the code is known, or follows from the answer.
    Request(Option<Code>),
}

/// The one exchange of a connection of SOCKS5. The connection, its time limits and its buffers are
/// those of HTTP/1.
pub struct SocksClient {
    pub(super) h1: H1Client,
    stage: Stage,
}

impl SocksClient {
    /// The tunnel is there.
    pub(super) fn send_tunnel_head(&mut self) {
        self.h1.send_bytes(&wire::reply(Code::Succeeded), After::Over);
    }

    /// There is no tunnel. Of the answer only its code reaches the client.
    pub(super) fn send_head(&mut self, head: &impl ReplyHead) {
        let reply = match self.stage {
            Stage::Stranger => Vec::new(),
            Stage::Greeting => vec![wire::VERSION, wire::NO_METHOD],
            Stage::Login => wire::login_reply(false).to_vec(),
            Stage::Request(code) => {
                wire::reply(code.unwrap_or_else(|| code_of(&collect_unruled(head)))).to_vec()
            }
        };
        self.h1.send_bytes(&reply, After::Close);
    }
}

/// The code for an answer to CONNECT that is no tunnel: by the type of the error in Proxy-Status,
/// which this proxy gives each of its own answers, or else by the status, of a parent's answer.
fn code_of(head: &ResponseHead) -> Code {
    let told = head.fields.get_by_name(b"Proxy-Status").unwrap_or_default();
    let told = String::from_utf8_lossy(told);
    let error = told.split("error=").nth(1).unwrap_or_default();
    let error = error.split(';').next().unwrap_or_default();
    let says = |words: &str| told.contains(words);
    match (error, head.status) {
        ("http_request_denied" | "destination_ip_prohibited", _) => Code::NotAllowed,
        ("dns_error" | "dns_timeout", _) => Code::HostUnreachable,
        ("connection_refused", _) => Code::Refused,
        ("destination_ip_unroutable", _) => Code::NetworkUnreachable,
        ("connection_timeout" | "http_response_timeout", _) => Code::Expired,
        ("destination_unavailable", _) if says("connection refused") => Code::Refused,
        ("destination_unavailable", _) if says("unreachable") => Code::HostUnreachable,
        // By type, and not by status.
        ("proxy_internal_error" | "http_request_error" | "proxy_loop_detected", _) => {
            Code::GeneralFailure
        }
        (_, 401 | 403 | 407 | 429) => Code::NotAllowed,
        (_, 502 | 503) => Code::HostUnreachable,
        (_, 504) => Code::Expired,
        _ => Code::GeneralFailure,
    }
}

#[cfg(test)]
mod tests {
    use humboldt_http::Version;

    use super::*;

    #[test]
    fn the_reason_of_an_error_becomes_a_code() {
        for (status, told, code) in [
            (403, "cache.test; error=http_request_denied; details=\"x\"", Code::NotAllowed),
            (407, "", Code::NotAllowed),
            (503, "cache.test; error=dns_error", Code::HostUnreachable),
            (
                503,
                "a; error=destination_unavailable; details=\"connection refused by 127.0.0.1:1\"",
                Code::Refused,
            ),
            (
                503,
                "a; error=destination_unavailable; details=\"192.0.2.1:1 is unreachable\"",
                Code::HostUnreachable,
            ),
            (504, "a; error=connection_timeout", Code::Expired),
            (503, "a; error=proxy_internal_error", Code::GeneralFailure),
            (508, "a; error=proxy_loop_detected", Code::GeneralFailure),
            (502, "", Code::HostUnreachable),
            (400, "", Code::GeneralFailure),
        ] {
            let mut head = ResponseHead::default();
            head.set_line(Version::Http11, status, b"");
            if !told.is_empty() {
                head.fields.push_named(b"Proxy-Status", told.as_bytes());
            }
            assert_eq!(code_of(&head), code, "{status} {told}");
        }
    }
}
