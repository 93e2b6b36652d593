//! Compiles conditions of the configuration, and notes which rules need the host's addresses.

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{AccessRule, AclTerm};

/// The rules of a configuration that may need the addresses of the host. The addresses are looked
/// up before these rules are asked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AsksAddresses {
    /// Rules that permit a request: `http_access`, `adapted_http_access`, `miss_access`.
    pub permission: bool,
    /// Rules that are asked about every answer, also hits: `reply_body_max_size`,
    /// `reply_header_access`, `reply_header_add`, `range_offset_limit`, `note`, `access_log`, marks
    /// of packets to clients.
    pub answers: bool,
    /// Rules that are asked before a server is: `cache_peer_access`, `tcp_outgoing_address`,
    /// `request_header_access`, `request_header_add`, `http_upgrade_request_protocols`,
    /// `sslproxy_cert_error`, `sslproxy_cert_sign`, `sslproxy_cert_adapt`, marks of packets to
    /// servers.
    pub forwarding: bool,
}

/// A list that allows exactly what matches all `terms`.
pub(crate) fn compile_condition(
    acls: &AclSet,
    terms: &[AclTerm],
) -> Result<RuleList, Vec<AclError>> {
    let rule = AccessRule { allow: true, terms: terms.to_vec(), source: None };
    RuleList::compile(acls, &[rule], false)
}

/// The value that `take` finds in each rule, with the compiled condition of the rule.
pub(crate) fn with_conditions<R, T>(
    acls: &AclSet,
    rules: &[R],
    take: impl Fn(&R) -> (T, &[AclTerm]),
) -> Result<Vec<(T, RuleList)>, Vec<AclError>> {
    let compile = |rule| {
        let (value, terms) = take(rule);
        Ok((value, compile_condition(acls, terms)?))
    };
    rules.iter().map(compile).collect()
}

/// A list of rules, if there are any. `default` decides if none of them matches.
pub(crate) fn compile_optional(
    acls: &AclSet,
    rules: &[AccessRule],
    default: bool,
) -> Result<Option<RuleList>, Vec<AclError>> {
    match rules {
        [] => Ok(None),
        rules => RuleList::compile(acls, rules, default).map(Some),
    }
}
