//! The lists of rules in squid.conf: the moment at which each is asked, and the way to the answers
//! that its slow ACLs need.
//!
//! This table alone decides which ACLs a list takes. The parser refuses rules by it, and
//! `docs/squid.conf.md` shows it.

/// A fact that an ACL needs before it can decide, and that is found elsewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// The addresses of the host that the URL names, from the DNS.
    DstIps,
    /// The hardware address of the client, from the kernel, which answers at once.
    Hardware,
    /// The netfilter mark of the client's connection, from the kernel, which answers at once.
    Mark,
    /// All annotations. They are at hand, unless there were more than are kept.
    Notes,
    /// The name of the client, from the DNS.
    ClientName,
    /// The user that the client names, checked by a helper for authentication.
    User,
    /// The answer of a helper of `external_acl_type`.
    Helper,
    /// The user that the client's machine names (ident).
    Ident,
}

impl Need {
    /// Every need.
    pub const ALL: [Self; 8] = [
        Self::DstIps,
        Self::Hardware,
        Self::Mark,
        Self::Notes,
        Self::ClientName,
        Self::User,
        Self::Helper,
        Self::Ident,
    ];

    /// Whether the answer may take time: ACLs with such a need are the slow ones.
    pub fn is_slow(self) -> bool {
        !matches!(self, Self::Hardware | Self::Mark | Self::Notes)
    }

    /// The need in words.
    fn words(self) -> &'static str {
        match self {
            Self::DstIps => "the addresses of the host",
            Self::Hardware => "the client's hardware address",
            Self::Mark => "the mark of the client's connection",
            Self::Notes => "all annotations",
            Self::ClientName => "the client's name in the DNS",
            Self::User => "a checked user",
            Self::Helper => "the answer of a helper",
            Self::Ident => "an answer of the client's ident server",
        }
    }
}

/// The way to the answers that an ACL in a list needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Supply {
    /// The list waits: it asks when it comes to the ACL, and goes on with the answer.
    Waits,
    /// The list does not wait: all possible questions are asked before.
    Ahead,
    /// Nobody waits: the answer comes at once.
    AtOnce,
    /// Nobody waits: the answer is there if an earlier list has asked. Otherwise there is none, and
    /// the list does not allow.
    IfKnown,
    /// The answer cannot be there: such an ACL in the list is an error when the file is read.
    Never,
}

/// The part of a transaction that is known when a list is asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The request.
    Request,
    /// The answer too.
    Answer,
    /// Of the answer its status and its media type.
    End,
}

macro_rules! lists {
    ($($variant:ident = $name:literal: $moment:ident, $slow:ident, $addresses:ident;)+) => {
        /// A directive with rules or conditions made of ACLs.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum List { $(#[doc = concat!("`", $name, "`")] $variant,)+ }

        impl List {
            /// Every list.
            pub const ALL: &[List] = &[$(List::$variant,)+];

            /// The directive.
            pub fn name(self) -> &'static str {
                match self { $(List::$variant => $name,)+ }
            }

            pub(crate) fn moment(self) -> Moment {
                match self { $(List::$variant => Moment::$moment,)+ }
            }

            /// The supply of answers for slow ACLs other than addresses, as in Squid's manual.
            fn slow(self) -> Supply {
                match self { $(List::$variant => Supply::$slow,)+ }
            }

            /// The supply of the addresses that `dst` needs. Most lists see them, which is more
            /// than Squid's manual promises.
            fn addresses(self) -> Supply {
                match self { $(List::$variant => Supply::$addresses,)+ }
            }
        }
    };
}

// The last two columns of a list that is not obeyed yet are those of Squid's manual. No list has
// `Ahead` in the column `slow`: the first one must make sure that it has the answers of all slow
// ACLs before it is asked; until then they count as unanswered.
lists! {
    // list                                              asked of  slow    dst
    FollowXForwardedFor = "follow_x_forwarded_for":      Request,  Never,  Never;
    ProxyProtocolAccess = "proxy_protocol_access":       Request,  Never,  Never;
    SpoofClientIp = "spoof_client_ip":                   Request,  Never,  Ahead;
    HttpAccess = "http_access":                          Request,  Waits,  Waits;
    AdaptedHttpAccess = "adapted_http_access":           Request,  Waits,  Waits;
    HttpAccessReportOnly = "http_access_report_only":    Request,  Waits,  Waits;
    ReportOnly = "report_only":                          Request,  Never,  Never;
    HttpReplyAccess = "http_reply_access":               Answer,   Waits,  Waits;
    MissAccess = "miss_access":                          Request,  Never,  Waits;
    PrivateDestinations = "private_destinations":        Request,  Never,  Ahead;
    Cache = "cache":                                     Request,  Waits,  Waits;
    SendHit = "send_hit":                                Answer,   Never,  Ahead;
    StoreMiss = "store_miss":                            Answer,   Never,  Ahead;
    AlwaysDirect = "always_direct":                      Request,  Waits,  Waits;
    NeverDirect = "never_direct":                        Request,  Waits,  Waits;
    CachePeerAccess = "cache_peer_access":               Request,  Never,  Ahead;
    TcpOutgoingAddress = "tcp_outgoing_address":         Request,  Never,  Ahead;
    TcpOutgoingTos = "tcp_outgoing_tos":                 Request,  Never,  Ahead;
    TcpOutgoingMark = "tcp_outgoing_mark":               Request,  Never,  Ahead;
    ClientsideTos = "clientside_tos":                    Request,  Never,  Ahead;
    MarkClientPacket = "mark_client_packet":             Request,  Never,  Ahead;
    MarkClientConnection = "mark_client_connection":     Request,  Never,  Ahead;
    ReplyBodyMaxSize = "reply_body_max_size":            Answer,   Never,  Ahead;
    RangeOffsetLimit = "range_offset_limit":             Request,  Never,  Ahead;
    UpgradeProtocols = "http_upgrade_request_protocols": Request,  Never,  Ahead;
    RequestHeaderAccess = "request_header_access":       Request,  Never,  Ahead;
    RequestHeaderAdd = "request_header_add":             Request,  Never,  Ahead;
    ReplyHeaderAccess = "reply_header_access":           Answer,   Never,  Ahead;
    ReplyHeaderAdd = "reply_header_add":                 Answer,   Never,  Ahead;
    DelayAccess = "delay_access":                        Answer,   Never,  Ahead;
    ResponseDelayAccess = "response_delay_pool_access":  Answer,   Never,  Ahead;
    ClientDelayAccess = "client_delay_access":           Request,  Never,  Never;
    IcpAccess = "icp_access":                            Request,  Never,  Never;
    AccessLog = "access_log":                            End,      Never,  Ahead;
    Note = "note":                                       End,      Never,  Ahead;
    ClientBudget = "client_budget":                      Request,  Never,  Never;
    AuthSchemes = "auth_schemes":                        Request,  Never,  Never;
    SslBump = "ssl_bump":                                Request,  Waits,  Waits;
    CertError = "sslproxy_cert_error":                   Request,  Never,  Ahead;
    CertSign = "sslproxy_cert_sign":                     Request,  Never,  Ahead;
    CertAdapt = "sslproxy_cert_adapt":                   Request,  Never,  Ahead;
    OnUnsupportedProtocol = "on_unsupported_protocol":   Request,  Never,  Never;
    UrlRewriteAccess = "url_rewrite_access":             Request,  Waits,  Waits;
    StoreIdAccess = "store_id_access":                   Request,  Waits,  Waits;
    // Not obeyed yet.
    BrokenPosts = "broken_posts":                        Request, Never,  Never;
    ForceContinuation = "force_request_body_continuation":Request, Never,  Never;
    PoolForNonretriable = "server_pconn_for_nonretriable":Request, Never,  Never;
    CollapsedForwarding = "collapsed_forwarding_access": Request, Never,  Never;
    StatsCollection = "stats_collection":                Request, Never,  Never;
    AdaptationAccess = "adaptation_access":              Request, Waits,  Waits;
    IcapAccess = "icap_access":                          Request, Waits,  Waits;
    IcapRetry = "icap_retry":                            Request, Never,  Never;
    AdaptationMeta = "adaptation_meta":                  Request, Never,  Never;
    SnmpAccess = "snmp_access":                          Request, Never,  Never;
    FtpEpsv = "ftp_epsv":                                Request, Never,  Never;
    HtcpAccess = "htcp_access":                          Request, Never,  Never;
    HtcpClrAccess = "htcp_clr_access":                   Request, Never,  Never;
}

impl List {
    /// The list that this directive (by its first name) makes, if it makes one.
    pub fn of(directive: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|list| list.name() == directive)
    }

    /// The supply of the answers that an ACL in the list needs.
    pub fn supply(self, need: Need) -> Supply {
        match need {
            Need::DstIps => self.addresses(),
            Need::Hardware | Need::Mark | Need::Notes => Supply::AtOnce,
            Need::User if self.comes_after_logins() => Supply::IfKnown,
            Need::ClientName | Need::User | Need::Helper | Need::Ident => self.slow(),
        }
    }

    /// Whether the list does not wait, and is asked when earlier ones may have asked for a login.
    fn comes_after_logins(self) -> bool {
        let is_before = matches!(
            self,
            Self::FollowXForwardedFor
                | Self::ProxyProtocolAccess
                | Self::ClientDelayAccess
                | Self::IcpAccess
                | Self::AuthSchemes
        );
        self.slow() == Supply::Never && !is_before
    }

    /// The reason why the list does not take an ACL with this need, if so. `what` is the ACL and
    /// its type in words.
    pub(crate) fn objection(self, what: &str, need: Need) -> Option<String> {
        if self.supply(need) != Supply::Never {
            return None;
        }
        let instead = match need {
            Need::DstIps => " (`dst -n` needs none: it matches addresses in URLs only)",
            _ => "",
        };
        Some(format!(
            "{what}, which needs {}{instead}, and {} cannot wait for that",
            need.words(),
            self.name()
        ))
    }

    /// Whether slow ACLs may stand in the list, for the reference.
    pub(crate) fn in_words(self) -> &'static str {
        let takes_addresses = self.addresses() != Supply::Never;
        match (self.slow() != Supply::Never, takes_addresses, self.comes_after_logins()) {
            (true, ..) => "Slow ACLs: yes.",
            (false, true, true) => {
                "Slow ACLs: `dst`, and those about users: one who has not logged in yet matches none."
            }
            (false, true, false) => "Slow ACLs: only `dst`.",
            (false, false, true) => {
                "Slow ACLs: only those about users: one who has not logged in yet matches none."
            }
            (false, false, false) => "Slow ACLs: no.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Status, directives};
    use crate::types::AclKind;
    use crate::{Diagnostics, parse_str};

    #[test]
    fn the_directives_with_acls_are_the_table() {
        for directive in directives().filter(|one| !matches!(one.status, Status::Obsolete(_))) {
            // They define ACLs, or name those that decided elsewhere.
            let is_other = ["acl", "deny_info", "external_acl_type"].contains(&directive.name);
            let mut words = directive.syntax.split([' ', '[', ']', '!']);
            let takes_acls = words.any(|word| word == "ACL") && !is_other;
            assert_eq!(List::of(directive.name).is_some(), takes_acls, "{}", directive.name);
        }
        for list in List::ALL {
            let known = directives().find(|directive| directive.name == list.name());
            assert!(known.is_some(), "{} is no directive", list.name());
        }
    }

    /// The rules of Squid's manual ("supports both fast and slow acl types", [slow]), written down
    /// a second time; and the rule that `dst` may stand in every obeyed list but eight.
    #[test]
    fn each_list_takes_the_kinds_that_the_manual_says() {
        let slow_lists = [
            "http_access",
            "adapted_http_access",
            "http_access_report_only",
            "http_reply_access",
            "cache",
            "always_direct",
            "never_direct",
            "ssl_bump",
            "url_rewrite_access",
            "store_id_access",
            "adaptation_access",
            "icap_access",
        ];
        let slow_kinds = [
            "dst",
            "srcdomain",
            "srcdom_regex",
            "dst_as",
            "proxy_auth",
            "proxy_auth_regex",
            // The manual calls it fast, but it asks for a login like the two above.
            "max_user_ip",
            // `ext_user` and `ext_user_regex` are slow in the manual, but wait for nothing.
            "external",
            "ident",
            "ident_regex",
        ];
        let is_obeyed =
            |list: List| directives().any(|d| d.name == list.name() && d.status == Status::Works);
        for (&list, &kind) in
            List::ALL.iter().flat_map(|list| AclKind::ALL.iter().map(move |kind| (list, kind)))
        {
            let (name, need) = (list.name(), kind.need());
            let is_slow = need.is_some_and(Need::is_slow);
            assert_eq!(is_slow, slow_kinds.contains(&kind.name()), "{}", kind.name());
            let objection =
                need.and_then(|need| list.objection(&format!("`x` is {}", kind.name()), need));
            let sees_addresses = is_obeyed(list) && !sees_no_addresses(name);
            let is_taken = match need {
                None | Some(Need::Hardware | Need::Mark | Need::Notes) => true,
                Some(Need::DstIps) => sees_addresses || slow_lists.contains(&name),
                Some(Need::User) => !BEFORE_REQUESTS.contains(&name),
                Some(_) => slow_lists.contains(&name),
            };
            assert_eq!(objection.is_none(), is_taken, "{name} {}: {objection:?}", kind.name());
            if let Some(why) = objection {
                assert!(why.contains(name) && why.contains(kind.name()), "{why}");
            }
        }
    }

    /// Lists that are asked before anything else is known of a request.
    const BEFORE_REQUESTS: [&str; 5] = [
        "follow_x_forwarded_for",
        "proxy_protocol_access",
        "client_delay_access",
        "icp_access",
        "auth_schemes",
    ];

    /// Whether a list that is obeyed takes no ACL about the addresses of the host.
    fn sees_no_addresses(name: &str) -> bool {
        BEFORE_REQUESTS.contains(&name)
            || ["report_only", "client_budget", "on_unsupported_protocol"].contains(&name)
    }

    /// A line of each list that is obeyed, with the ACL `x`.
    const LINES: [&str; 44] = [
        "follow_x_forwarded_for allow x",
        "proxy_protocol_access allow x",
        "spoof_client_ip allow x",
        "http_access allow x",
        "adapted_http_access allow x",
        "http_access_report_only allow x",
        "report_only allow x",
        "http_reply_access allow x",
        "miss_access allow x",
        "private_destinations allow x",
        "cache allow x",
        "send_hit allow x",
        "store_miss allow x",
        "always_direct allow x",
        "never_direct allow x",
        "cache_peer_access p allow x",
        "tcp_outgoing_address 127.0.0.1 x",
        "tcp_outgoing_tos 4 x",
        "tcp_outgoing_mark 4 x",
        "clientside_tos 4 x",
        "mark_client_packet 4 x",
        "mark_client_connection 4 x",
        "reply_body_max_size 1 MB x",
        "range_offset_limit 1 MB x",
        "http_upgrade_request_protocols OTHER allow x",
        "request_header_access Server allow x",
        "request_header_add X-A a x",
        "reply_header_access Server allow x",
        "reply_header_add X-A a x",
        "delay_access 1 allow x",
        "response_delay_pool_access r allow x",
        "client_delay_access 1 allow x",
        "icp_access allow x",
        "access_log /x squid x",
        "note a b x",
        "client_budget tunnels=1 x",
        "auth_schemes ALL x",
        "ssl_bump splice x",
        "sslproxy_cert_error allow x",
        "sslproxy_cert_sign signSelf x",
        "sslproxy_cert_adapt setValidAfter x",
        "on_unsupported_protocol respond x",
        "url_rewrite_access allow x",
        "store_id_access allow x",
    ];

    /// Pools that rules can be about, on one line each.
    const POOLS: &str = "delay_pools 1\nclient_delay_pools 1\nresponse_delay_pool r\n";

    /// A scheme that can be offered.
    const PROGRAM: &str = "auth_param ntlm program /bin/cat\n";

    fn read(text: &str) -> Diagnostics {
        parse_str(
            "t",
            &format!("http_port 1 ssl-bump\ncache_peer p parent 1 0\n{POOLS}{text}\n{PROGRAM}"),
        )
        .1
    }

    #[test]
    fn a_slow_acl_in_a_list_that_cannot_wait_is_an_error_at_its_place() {
        let obeyed = List::ALL.iter().filter(|list| {
            directives().any(|one| one.name == list.name() && one.status == Status::Works)
        });
        let lines = LINES.map(|line| line.split(' ').next().unwrap_or_default());
        assert!(obeyed.map(|list| list.name()).eq(lines), "a line of each list");
        for line in LINES {
            for (acl, is_slow) in [
                ("acl x dst 10.0.0.0/8", true),
                ("acl far dst 10.0.0.0/8\nacl both all-of all far\nacl x any-of all both", true),
                ("acl x dst -n 10.0.0.0/8", false),
                ("acl x src 10.0.0.0/8", false),
            ] {
                let found = read(&format!("{acl}\n{line}\n"));
                let never_waits = line.split(' ').next().is_some_and(sees_no_addresses);
                let is_wrong = is_slow && never_waits;
                assert_eq!(found.has_errors(), is_wrong, "{}", found.render(false));
                if is_wrong {
                    let row = 6 + acl.lines().count();
                    let said = found.render(false);
                    assert!(said.contains(&format!("t:{row}:{}", line.len())), "{said}");
                    assert!(
                        said.contains("is of type `dst`, which needs the addresses of the host"),
                        "{said}"
                    );
                    assert!(said.contains(" cannot wait for that"), "{said}");
                }
            }
        }
    }

    #[test]
    fn the_name_of_the_client_is_an_error_in_lists_that_do_not_wait() {
        for line in LINES {
            let directive = line.split(' ').next().unwrap_or_default();
            let waits = List::of(directive).map(|list| list.supply(Need::ClientName));
            for acl in ["acl x srcdomain .a.test", "acl x srcdom_regex ^a"] {
                let said = read(&format!("{acl}\n{line}\n")).render(false);
                let is_wrong = said.contains("needs the client's name in the DNS");
                assert_eq!(is_wrong, waits == Some(Supply::Never), "{said}");
                assert_eq!(is_wrong, said.contains("t:7:"), "{said}");
            }
        }
    }

    #[test]
    fn a_group_that_becomes_slow_after_its_use_is_found() {
        let text = "acl g any-of localhost\nfollow_x_forwarded_for allow g\nacl far dst 10.0.0.1\n";
        assert!(!read(text).has_errors());
        let late = read(&format!("{text}acl g any-of far\n"));
        assert!(late.has_errors(), "{}", late.render(false));
        let fine = read(&format!("{text}acl h any-of far\nhttp_access allow h\n"));
        assert!(!fine.has_errors(), "{}", fine.render(false));
    }
}
