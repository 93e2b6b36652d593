//! `private_destinations`: whether the addresses of the host may be connected to.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use humboldt_acl::{RuleList, Subject};
use humboldt_conf::Config;
use humboldt_net::dns::NameCache;
use humboldt_proxy::destinations::{by_lines, is_local, judge, kind_of_destination};
use humboldt_proxy::snapshot::Snapshot;

use super::asked::Asked;
use super::end::End;

/// The names that are asked for here: only those of the hosts file are kept.
const NAMES_KEPT: usize = 1;

/// Writes what becomes of each address of the host that is not public. Refused is a request for
/// which none is left.
pub(super) fn explain(out: &mut String, snapshot: &Snapshot, asked: &Asked) -> End {
    let names = names(&snapshot.config);
    let Some(addresses) = asked.addresses_of_name() else { return End::Allowed };
    let Some(addresses) = addresses else {
        out.push_str(
            "\nprivate_destinations: the addresses of the host are not known here (--dst): private \
             ones need a rule that names the host.\n",
        );
        return End::Allowed;
    };
    let mut lines = String::new();
    let mut left = 0;
    for ip in addresses {
        left += usize::from(may_go(&mut lines, snapshot, asked, &names, ip));
    }
    if lines.is_empty() {
        return End::Allowed;
    }
    let answer = if left > 0 { "yes" } else { "no" };
    let _ =
        write!(out, "\nprivate_destinations: may it go to these addresses?\n{lines}  → {answer}\n");
    if left > 0 { End::Allowed } else { End::Refused }
}

/// Whether the request may go to this address.
fn may_go(
    out: &mut String,
    snapshot: &Snapshot,
    asked: &Asked,
    names: &NameCache,
    ip: IpAddr,
) -> bool {
    let Some(kind) = kind_of_destination(ip) else { return true };
    let (config, host) = (&snapshot.config, asked.host());
    let completes = config.append_domain.is_some() || config.dns_defnames;
    let is_given = is_local(names, host, ip) || completes && !host.contains(&b'.');
    let check = |list, subject: &Subject<'_>| RuleList::check(list, subject);
    let judged = match is_given {
        true => by_lines(snapshot, &asked.subject(), ip, check),
        false => Some(judge(snapshot, &asked.subject(), ip, check)),
    };
    let Some(judged) = judged else {
        let why = "yes, the owner of no name has chosen it";
        let _ = writeln!(out, "  {ip} ({kind}): {why}");
        return true;
    };
    let words = match &judged {
        Ok(()) => "yes, by a rule that names it or opens it".to_owned(),
        Err(Some(rule)) => format!("refused by {rule}"),
        Err(None) => "refused, as a rule needs what only the running proxy knows".to_owned(),
    };
    let _ = writeln!(out, "  {ip} ({kind}): {words}");
    judged.is_ok()
}

/// The names of the hosts file, as far as it can be read.
fn names(config: &Config) -> NameCache {
    let names = NameCache::new(NAMES_KEPT);
    let path = config.hosts_file.as_deref().map(Path::new);
    _ = names.load_hosts(path, config.append_domain.as_deref());
    names
}
