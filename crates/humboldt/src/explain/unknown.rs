//! ACLs whose facts only the running proxy has: no explanation can tell whether they match.

use humboldt_acl::Step;
use humboldt_conf::{AclDef, AclKind, AclTerm};

/// Groups within groups are looked into this deep.
const GROUP_DEPTH_MAX: usize = 16;

/// The facts that are missing.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Missing {
    /// The fields of the request, and the port that it came to: those of a log.
    pub(super) fields: bool,
    /// Nothing about the interception of TLS but what the explanation says: it is about one of the
    /// steps of `ssl_bump`, at which the proxy knows no more.
    pub(super) not_tls: bool,
    /// The query of the URL, which `strip_query_terms` has cut off.
    pub(super) query: bool,
}

impl Missing {
    fn concerns(self, kind: AclKind) -> bool {
        use AclKind as K;
        match kind {
            K::Tag | K::ExtUser | K::ExtUserRegex | K::Note | K::Random | K::LocalIp => true,
            K::MaxConn | K::MaxUserIp | K::UserCert | K::CaCert => true,
            K::SslError | K::ServerCertFingerprint => !self.not_tls,
            // A line of a log may be about a tunnel, or about a request inside of one.
            K::AtStep | K::SslServerName | K::SslServerNameRegex => self.fields,
            K::ConnectionsEncrypted => self.fields,
            K::Browser | K::ReqHeader | K::RefererRegex | K::ReqMimeType => self.fields,
            K::LocalPort | K::MyPortName => self.fields,
            K::UrlRegex | K::UrlPathRegex => self.query,
            _ => false,
        }
    }
}

/// The ACL because of which it is not known here what a rule says. A rule is known not to match if
/// one of its ACLs does not, and that one is known.
pub(super) fn unknown_in<'a>(
    acls: &[AclDef],
    terms: &'a [AclTerm],
    step: Step<'a>,
    missing: Missing,
) -> Option<&'a str> {
    match step {
        Step::Differs { acl, .. } => {
            // The member of a group stands for the group.
            let known = !is_unknown(acls, acl, missing, 0);
            if known { None } else { Some(acl) }
        }
        Step::Applies => in_rule(acls, terms, missing),
        Step::Challenge(_) | Step::Needs(_) => None,
    }
}

/// The first ACL of a rule that cannot be known here.
fn in_rule<'a>(acls: &[AclDef], terms: &'a [AclTerm], missing: Missing) -> Option<&'a str> {
    terms.iter().map(|term| &*term.name).find(|name| is_unknown(acls, name, missing, 0))
}

/// Whether this ACL, or a member of it, cannot be known here.
fn is_unknown(acls: &[AclDef], name: &str, missing: Missing, depth: usize) -> bool {
    let Some(acl) = acls.iter().find(|acl| acl.name.eq_ignore_ascii_case(name)) else {
        return false;
    };
    let is_group = matches!(acl.kind, AclKind::AnyOf | AclKind::AllOf);
    if !is_group || depth >= GROUP_DEPTH_MAX {
        return is_group || missing.concerns(acl.kind);
    }
    let members = acl.values.iter().flat_map(|line| line.split(' '));
    let mut members = members.map(|member| member.trim_start_matches('!'));
    members.any(|member| is_unknown(acls, member, missing, depth + 1))
}
