//! The rules of tunnels, and what they make of one.

use std::path::Path;

use crate::bump::BumpPlan;
use crate::chance::Chance;

/// An action of `ssl_bump`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Splice,
    Bump,
    Terminate,
    Peek,
    Stare,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::Bump => "bump",
            Self::Terminate => "terminate",
            Self::Peek => "peek",
            Self::Stare => "stare",
        }
    }
}

/// What the rules say of one host.
#[derive(Copy, Clone, Debug)]
struct Way {
    first: Action,
    /// `None`: no rule.
    second: Option<Action>,
    is_terminated_third: bool,
    is_denied: bool,
    is_forgiven: bool,
}

/// All rules of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Rules(Vec<Way>);

/// What becomes of a tunnel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// CONNECT is refused, with a page.
    Refused,
    /// It is closed without a byte. Its first message may have gone to the server.
    Closed { after_peek: bool },
    /// It passes unread.
    Spliced,
    /// It is decrypted.
    Bumped,
    /// It is decrypted, and has nothing but pages that refuse.
    Page,
}

/// The facts of a tunnel.
#[derive(Copy, Clone, Debug)]
pub(super) struct Facts {
    /// The host of CONNECT.
    pub(super) connect: usize,
    /// The host that is asked for in TLS, or that of CONNECT.
    pub(super) named: usize,
    /// The first message is none.
    pub(super) is_garbage: bool,
    /// It looks like TLS all the same.
    pub(super) looks_like_tls: bool,
}

impl Rules {
    pub(super) fn new(plan: &BumpPlan, chance: &mut Chance) -> Self {
        let way = |chance: &mut Chance| Way {
            first: chance.weighted(&[
                (2, Action::Splice),
                (3, Action::Bump),
                (1, Action::Terminate),
                (6, Action::Peek),
                (4, Action::Stare),
            ]),
            second: chance.weighted(&[
                (3, None),
                (2, Some(Action::Splice)),
                (2, Some(Action::Bump)),
                (1, Some(Action::Terminate)),
                (3, Some(Action::Peek)),
                (3, Some(Action::Stare)),
            ]),
            is_terminated_third: chance.per_mille(300),
            is_denied: chance.per_mille(200) && plan.denies,
            is_forgiven: chance.per_mille(500) && plan.forgives,
        };
        Self((0..plan.hosts).map(|_| way(chance)).collect())
    }

    /// Lines of the port, and of the rules.
    pub(super) fn lines(&self, plan: &BumpPlan, root: &Path) -> (String, String) {
        let root = root.display();
        let port = format!(
            "http_port 3128 ssl-bump tls-cert={root}/proxy.pem generate-host-certificates=on\n"
        );
        let mut text = format!(
            "tls_outgoing_options cafile={root}/servers.pem default-ca=off\n\
             acl one at_step SslBump1\nacl two at_step SslBump2\nacl three at_step SslBump3\n\
             client_budget tunnels=1000\n"
        );
        if plan.passes_others {
            text += "on_unsupported_protocol tunnel all\n";
        }
        for (host, way) in self.0.iter().enumerate() {
            text += &format!("acl s{host} ssl::server_name s{host}.sim\n");
            text += &format!("ssl_bump {} one s{host}\n", way.first.name());
            if let Some(second) = way.second {
                text += &format!("ssl_bump {} two s{host}\n", second.name());
            }
            if way.is_terminated_third {
                text += &format!("ssl_bump terminate three s{host}\n");
            }
            if way.is_denied {
                text += &format!("acl d{host} dstdomain s{host}.sim\nhttp_access deny d{host}\n");
            }
            if way.is_forgiven {
                text += &format!(
                    "acl f{host} dstdomain s{host}.sim\nsslproxy_cert_error allow f{host}\n"
                );
            }
        }
        (port, text)
    }

    /// Whether faults of this host are forgiven.
    pub(super) fn forgive(&self, host: usize) -> bool {
        self.0[host].is_forgiven
    }

    /// Whether requests for this host are refused.
    pub(super) fn deny(&self, host: usize) -> bool {
        self.0[host].is_denied
    }

    /// What may become of a tunnel.
    pub(super) fn fates(&self, plan: &BumpPlan, facts: Facts) -> Vec<Fate> {
        const CLOSED: Fate = Fate::Closed { after_peek: false };
        let (connect, named) = (self.0[facts.connect], self.0[facts.named]);
        match connect.first {
            Action::Terminate => return vec![CLOSED],
            Action::Splice | Action::Peek if connect.is_denied => return vec![Fate::Refused],
            Action::Splice => return vec![Fate::Spliced],
            Action::Bump | Action::Stare | Action::Peek => {}
        }
        if facts.is_garbage {
            let passes = plan.passes_others && !facts.looks_like_tls && !connect.is_denied;
            return vec![if passes { Fate::Spliced } else { CLOSED }];
        }
        let second = match (connect.first, named.second) {
            (Action::Bump, _) => Action::Bump,
            (_, Some(second)) => second,
            (Action::Stare, None) => Action::Bump,
            (_, None) => Action::Splice,
        };
        let is_denied = connect.is_denied || named.is_denied;
        match second {
            Action::Terminate => vec![CLOSED],
            Action::Splice | Action::Peek if is_denied => vec![CLOSED],
            Action::Bump | Action::Stare if is_denied => vec![Fate::Page],
            Action::Splice => vec![Fate::Spliced],
            Action::Bump => vec![Fate::Bumped],
            Action::Peek => {
                let closed = Fate::Closed { after_peek: true };
                match (named.is_terminated_third, facts.connect == facts.named) {
                    (true, _) => vec![closed],
                    (false, true) => vec![Fate::Spliced],
                    // The certificate may bring another name, which closes.
                    (false, false) if connect.is_terminated_third => vec![closed, Fate::Spliced],
                    (false, false) => vec![Fate::Spliced],
                }
            }
            // Without a server there is no third step.
            Action::Stare if named.is_terminated_third => vec![CLOSED, Fate::Page],
            Action::Stare => vec![Fate::Bumped],
        }
    }
}
