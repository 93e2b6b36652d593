//! The interception of TLS (`ssl_bump`): its steps and actions, and the facts of a connection that
//! rules and logs ask for.

use std::rc::Rc;

use crate::certificate::Certificate;

/// The moment at which `ssl_bump` is asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BumpStep {
    /// Only addresses and the target of CONNECT are known.
    One,
    /// The client's first message (ClientHello) has been read.
    Two,
    /// The server has answered.
    Three,
}

impl BumpStep {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// The value of `at_step`.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "SslBump1",
            Self::Two => "SslBump2",
            Self::Three => "SslBump3",
        }
    }
}

/// What is done with a connection at a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BumpAction {
    /// Go to the next step, so that splicing stays possible.
    Peek,
    /// Go to the next step, so that bumping stays possible.
    Stare,
    /// Become a tunnel that nobody looks into.
    Splice,
    /// Decrypt.
    Bump,
    /// Close the connections.
    Terminate,
}

impl BumpAction {
    /// Its name in squid.conf and in `%ssl::bump_mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peek => "peek",
            Self::Stare => "stare",
            Self::Splice => "splice",
            Self::Bump => "bump",
            Self::Terminate => "terminate",
        }
    }

    /// Whether it can be done at a step. `before`: the action of the step before; `None` at the
    /// first.
    pub fn is_possible(self, step: BumpStep, before: Option<Self>) -> bool {
        match (step, self) {
            (_, Self::Terminate) => true,
            (BumpStep::One | BumpStep::Two, _) => true,
            // The bytes of the client have gone to the server as they are.
            (BumpStep::Three, Self::Splice) => before != Some(Self::Stare),
            // The server has answered to a message of this proxy's own.
            (BumpStep::Three, Self::Bump) => before == Some(Self::Stare),
            (BumpStep::Three, Self::Peek | Self::Stare) => false,
        }
    }

    /// The action where no rule matches. `before`: the action of the step before.
    pub fn without_a_rule(before: Option<Self>) -> Self {
        match before {
            Some(Self::Stare) => Self::Bump,
            _ => Self::Splice,
        }
    }

    /// The action where no rule matches for certain, and one might. `is_known_later`: at a later
    /// step. Nothing passes unread because of that. `before`: the action of the step before.
    pub fn in_doubt(step: BumpStep, before: Option<Self>, is_known_later: bool) -> Self {
        match (step, before) {
            (_, Some(Self::Stare)) => Self::Bump,
            (BumpStep::One | BumpStep::Two, _) if is_known_later => Self::Peek,
            _ => Self::Terminate,
        }
    }
}

/// A client's first message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The name of the server that the client wants, in lower case and without a dot at its end.
    pub sni: Option<Box<str>>,
    /// The protocols that it offers, best first.
    pub alpn: Vec<Box<[u8]>>,
    /// The version in the head of its first record: `0x0301` for TLS 1.0 and so on.
    pub record_version: u16,
    /// The newest version that it speaks.
    pub newest_version: u16,
    /// It has an encrypted second name, or pretends to (ECH, GREASE).
    pub has_ech: bool,
}

/// A server's certificate, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Subject and issuer; `None`: it was not shown, or cannot be read.
    pub certificate: Option<Certificate>,
    /// The names and addresses that it is for, in lower case: those of the extension; without one,
    /// the common name.
    pub names: Vec<String>,
    /// Its digest.
    pub sha1: [u8; 20],
    /// Its faults in the order in which they were found, by Squid's names:
    /// `X509_V_ERR_CERT_HAS_EXPIRED`.
    pub faults: Vec<&'static str>,
    /// The certificate itself; empty: none was shown.
    pub der: Box<[u8]>,
    /// The time that the certificate and all that were sent with it have in common, in seconds
    /// since 1970, if one of the others is out of its own time.
    pub chain_time_s: Option<(i64, i64)>,
    /// The version that it has chosen: `0x0303` for TLS 1.2 and so on; 0: not known.
    pub version: u16,
    /// The cipher that it has chosen, by OpenSSL's name.
    pub cipher: Option<&'static str>,
}

/// The facts of a connection on a port with `ssl-bump`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpFacts {
    /// The step that has been reached.
    pub step: BumpStep,
    /// The last action that was chosen.
    pub action: Option<BumpAction>,
    /// The host of CONNECT in lower case, without brackets; of intercepted connections, the
    /// address.
    pub connect_host: Box<str>,
    /// Known from step 2 on.
    pub hello: Option<ClientHello>,
    /// Known from step 3 on. Copies of the facts share it: it has the whole certificate.
    pub server: Option<Rc<ServerIdentity>>,
}

impl BumpFacts {
    /// The facts of a connection at its first step.
    pub fn new(connect_host: &str) -> Self {
        let host = connect_host.trim_start_matches('[').trim_end_matches([']', '.']);
        Self {
            step: BumpStep::One,
            action: None,
            connect_host: host.to_ascii_lowercase().into(),
            hello: None,
            server: None,
        }
    }

    /// The name that the client asks for.
    pub fn sni(&self) -> Option<&str> {
        self.hello.as_ref()?.sni.as_deref()
    }

    /// The faults of the server's certificate.
    pub fn faults(&self) -> &[&'static str] {
        self.server.as_ref().map_or(&[], |server| &server.faults)
    }
}

/// How a certificate that is made here is signed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SignAs {
    /// By the port's authority, which clients know.
    #[default]
    Trusted,
    /// By an authority that nobody knows.
    Untrusted,
    /// By itself.
    SelfSigned,
}

/// The name of a version of TLS, as Squid logs it.
pub fn version_name(version: u16) -> Option<&'static str> {
    Some(match version {
        0x0300 => "SSL/3.0",
        0x0301 => "TLS/1.0",
        0x0302 => "TLS/1.1",
        0x0303 => "TLS/1.2",
        0x0304 => "TLS/1.3",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_step_follows_from_the_second() {
        use BumpAction::*;
        let possible = |step, before| {
            let all = [Peek, Stare, Splice, Bump, Terminate].into_iter();
            all.filter(|action| action.is_possible(step, before)).collect::<Vec<_>>()
        };
        assert_eq!(possible(BumpStep::One, None).len(), 5);
        assert_eq!(possible(BumpStep::Two, Some(Peek)).len(), 5);
        assert_eq!(possible(BumpStep::Two, Some(Stare)).len(), 5);
        assert_eq!(possible(BumpStep::Three, Some(Peek)), [Splice, Terminate]);
        assert_eq!(possible(BumpStep::Three, Some(Stare)), [Bump, Terminate]);
        assert_eq!(BumpAction::without_a_rule(None), Splice);
        assert_eq!(BumpAction::without_a_rule(Some(Peek)), Splice);
        assert_eq!(BumpAction::without_a_rule(Some(Stare)), Bump);
        for (step, before, is_known_later, wanted) in [
            (BumpStep::One, None, true, Peek),
            (BumpStep::One, None, false, Terminate),
            (BumpStep::Two, Some(Peek), true, Peek),
            (BumpStep::Two, Some(Peek), false, Terminate),
            (BumpStep::Two, Some(Stare), true, Bump),
            (BumpStep::Three, Some(Peek), true, Terminate),
            (BumpStep::Three, Some(Stare), false, Bump),
        ] {
            let doubted = BumpAction::in_doubt(step, before, is_known_later);
            assert_eq!(doubted, wanted, "{step:?} {before:?}");
            assert!(doubted.is_possible(step, before));
        }
    }

    #[test]
    fn hosts_are_compared_in_one_spelling() {
        assert_eq!(&*BumpFacts::new("[2001:DB8::1]").connect_host, "2001:db8::1");
        assert_eq!(&*BumpFacts::new("WWW.Example.com.").connect_host, "www.example.com");
    }
}
