//! The reference of all directives, as Markdown, from the table.

use std::collections::BTreeMap;

use crate::lists::{List, Need};
use crate::table::{self, Directive, Status};

const HEAD: &str = "# squid.conf

<!-- Made from crates/conf/src/table by `HUMBOLDT_BLESS=1 cargo test -p humboldt-conf --test docs`; do not edit. -->

Humboldt reads Squid's configuration language. This page lists every directive that it knows, with its \
status: it works, it is accepted and has no effect, or it is not supported yet.

## The language

- A line is a directive and its values, separated by blanks. `#` starts a comment at the beginning of a \
line or after a blank.
- A backslash at the very end of a line continues it on the next one. Comments and empty lines in between \
are skipped.
- `include PATH ...` reads other files (`*`, `?` and `[...]` are patterns), at most 16 deep.
- `if CONDITION`, `else`, `endif`. A condition is `true`, `false` or `INTEGER = INTEGER`. In nested `if`s \
all conditions must hold.
- `${service_name}` and `${process_name}` stand for `squid`. `${process_number}` stands for 0, or for 1 \
after `workers` with more than one: there is only one process, and its threads share one cache.
- Sizes have the units bytes, KB, MB, GB and TB, of 1024 each. Times have milliseconds, seconds, minutes, \
hours, days, weeks, fortnights, months, years and decades.
- Names of ACLs are compared without regard to case. An ACL must be defined above the rules that use it.
- A rule that uses an ACL which cannot be evaluated is an error. It is never skipped: a skipped `deny` \
would allow the requests that it is there to deny.
";

/// The whole page.
// tidy: public, because a test keeps docs/squid.conf.md equal to it.
pub fn docs_markdown() -> String {
    let mut sections: BTreeMap<usize, (&str, Vec<&Directive>)> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for directive in table::directives() {
        let at =
            order.iter().position(|section| *section == directive.section).unwrap_or_else(|| {
                order.push(directive.section);
                order.len() - 1
            });
        sections.entry(at).or_insert((directive.section, Vec::new())).1.push(directive);
    }
    let mut out = HEAD.to_owned();
    out.push_str("\n## How many\n\nstatus | directives\n--- | ---\n");
    for (title, matches) in STATUSES {
        let count = table::directives().filter(|d| matches(d.status)).count();
        out.push_str(&format!("{title} | {count}\n"));
    }
    out.push_str("\n## Types of ACL\n\n");
    push_acl_kinds(&mut out);
    for (section, directives) in sections.values() {
        out.push_str(&format!("\n## {section}\n"));
        for directive in directives.iter().filter(|d| d.status == Status::Works) {
            push_working(directive, &mut out);
        }
        push_known(directives, &mut out);
    }
    humboldt_base::prose::wrapped(&out)
}

type StatusTest = fn(Status) -> bool;

const STATUSES: [(&str, StatusTest); 4] = [
    ("works", |s| s == Status::Works),
    ("accepted, no effect", |s| matches!(s, Status::Ignored(_))),
    ("not supported yet", |s| matches!(s, Status::Unsupported(_))),
    ("obsolete", |s| matches!(s, Status::Obsolete(_))),
];

fn push_acl_kinds(out: &mut String) {
    let kinds = crate::AclKind::ALL.iter();
    let works: Vec<_> =
        kinds.clone().filter(|k| k.unsupported().is_none()).map(|k| code(k.name())).collect();
    out.push_str(&format!("These are evaluated: {}.\n\n", works.join(", ")));
    out.push_str(
        "Some types are about answers: `http_status`, `rep_mime_type` and `rep_header`. They are evaluated \
         in `http_reply_access`, `reply_body_max_size`, `reply_header_access` and `reply_header_add`, and \
         except `rep_header` in `access_log`. In other lists they are an error. Addresses are not looked up \
         to find their names: `dstdomain` and `dstdom_regex` compare an address in a URL as it is, as with \
         `-n`.\n\n\
         Lists may be long: a million addresses, domains or expressions that are nothing but text \
         (`ads\\.example\\.com/banner`) are loaded in seconds. Other expressions take much longer to compile. A \
         reload reads lists while requests are answered by the old ones.\n\n\
         `dst` is about the addresses of the host in the URL. They are looked up once for a request, when the \
         first list needs them. All lists except `follow_x_forwarded_for` see them, and only these addresses \
         are connected to. If there are several, only those are connected to that `http_access` and \
         `miss_access` allow one by one.\n\n\
         If the host has no address or the look-up fails, no `dst` without the value `none` can be answered. \
         Then lists that permit (`http_access`, `adapted_http_access`, `miss_access`, `http_reply_access`, \
         `reply_body_max_size`) refuse with 503 where the result depends on it, `never_direct` keeps to \
         parents, fields are removed that a rule may deny, `access_log` writes its line, `cache` stores nothing, and every other list \
         skips such a rule. So a proxy that leaves names to its parents needs `dst -n`, also instead of \
         `to_localhost`.\n\n",
    );
    push_slow_kinds(out);
    out.push_str(
        "`srcdomain` and `srcdom_regex` are about the client's name: the first one in the hosts file, or else \
         the first that the name servers have for its address. It is looked up once for a request. As in \
         Squid, nobody checks that the name leads back to the address, so whoever owns an address chooses its \
         name. Loopback addresses are `localhost` where the hosts file says nothing else. A client without a name \
         has the name `none`. If the name servers do not answer, no such ACL \
         can be answered, and lists do as for a `dst` without an answer.\n\n",
    );
    out.push_str(
        "`arp` is about the client's hardware address (MAC) in the kernel's table of neighbours, which is asked \
         when the client connects, and whenever the ACL is: where the kernel has dropped its entry meanwhile, \
         the first answer counts. Clients with IPv6, and those on this machine, do not match. \
         If the kernel does not know the address, as of a client behind a router, no `arp` can be answered \
         (Squid's does not match), and lists do as for a `dst` without an answer: decide about such clients \
         before. `eui64` is about the last 64 \
         bits of a unique local address (`fc00::/7`) that was made from a hardware address, that is with \
         `ff:fe` in their middle; all other clients do not match. Such an address has the second bit of the \
         card's inverted: write `02:…` for a card `00:…`. Any client can choose its hardware address.\n\n",
    );
    out.push_str(
        "`transaction_initiator` matches with `client` or `all`, because every transaction comes from a client. \
         Squid's other initiators are accepted and never match: nothing here begins such transactions.\n\n",
    );
    out.push_str(
        "`peername` and `peername_regex` are about the parent that a connection is made to, and are evaluated in \
         `tcp_outgoing_address`. For a connection to the origin they do not match. `hier_code` is about the code \
         of `%Sh`, and `squid_error` about that of `%err_code`; both are evaluated in `access_log`, and take all \
         of Squid's names, also of ways and errors that do not occur here. In other lists these types are an \
         error.\n\n",
    );
    out.push_str(
        "`annotate_transaction` and `annotate_client` always match, and annotate the transaction, the second \
         one also the connection of the client and so all its later requests: `name=value` replaces the \
         values of the name, `name+=value` adds one. With `-m` the value is a list, and each part of it a \
         value of its own. A value in quotes may have `logformat` codes of the request. As in Squid, the ACL \
         annotates whenever its rule gets to it, whatever follows it. A value that is there already is not \
         added a second time. `note` matches a transaction with an annotation of that name, and of one of the \
         values if there are any; with `-m` the annotation is a list. At most 64 annotations with 16 KiB \
         together are kept of a transaction or connection ([limits.md](limits.md)). Where one was not kept, a \
         `note` that does not match cannot be answered, and lists do as for a `dst` without an answer.\n\n",
    );
    out.push_str(
        "`has request` matches a request that could be read, `has response` where there is an answer when the \
         list is asked, and `has ALE` always.\n\n",
    );
    out.push_str("type | not evaluated, because\n--- | ---\n");
    for kind in kinds {
        if let Some(why) = kind.unsupported() {
            out.push_str(&format!("`{}` | {why}\n", kind.name()));
        }
    }
}

/// The slow kinds, and their consequences for lists.
fn push_slow_kinds(out: &mut String) {
    let slow = crate::AclKind::ALL.iter().filter(|kind| kind.need().is_some_and(Need::is_slow));
    let slow: Vec<_> = slow.map(|kind| code(kind.name())).collect();
    out.push_str(&format!(
        "These types are slow, because they need an answer from elsewhere: {}. Groups with such a member are \
         slow too. An ACL is asked only when those before it in its rule match, so no look-up is made without \
         need. A slow ACL is an error in a list that cannot have its answer; the entry of each list says which \
         it takes. `dst` is fast with `-n`.\n\n",
        slow.join(", ")
    ));
}

fn push_working(directive: &Directive, out: &mut String) {
    out.push_str(&format!("\n### {}\n\n```\n{}\n```\n\n", directive.name, directive.syntax));
    let default = if directive.default.is_empty() { "none" } else { directive.default };
    out.push_str(&format!(
        "{} Type: {}. Default: `{default}`.",
        sentence(directive.doc),
        directive.value
    ));
    if !directive.aliases.is_empty() {
        let names: Vec<_> = directive.aliases.iter().map(|name| code(name)).collect();
        out.push_str(&format!(" Also: {}.", names.join(", ")));
    }
    if let Some(list) = List::of(directive.name) {
        out.push_str(&format!(" {}", list.in_words()));
    }
    out.push('\n');
    if let Some(table) = crate::kinds::options_table(directive.name) {
        out.push_str(&format!("\n{table}"));
    }
}

fn push_known(directives: &[&Directive], out: &mut String) {
    let known: Vec<_> = directives.iter().filter(|d| d.status != Status::Works).collect();
    if known.is_empty() {
        return;
    }
    if known.iter().all(|d| matches!(d.status, Status::Obsolete(_))) {
        out.push_str("\ndirective | what to do instead\n--- | ---\n");
    } else {
        out.push_str("\nKnown only:\n\ndirective | meaning | here\n--- | --- | ---\n");
    }
    for directive in known {
        let names: Vec<_> = std::iter::once(&directive.name)
            .chain(directive.aliases)
            .map(|name| code(name))
            .collect();
        let names = names.join(", ");
        let row = match directive.status {
            Status::Works => continue,
            Status::Obsolete(advice) => format!("{names} | {advice}\n"),
            Status::Ignored(why) => {
                format!("{names} | {} | no effect: {why}\n", meaning(directive))
            }
            Status::Unsupported(why) => {
                format!("{names} | {} | not supported: {why}\n", meaning(directive))
            }
        };
        out.push_str(&row);
    }
}

/// The meaning of a directive that is only known, and whether slow ACLs may stand in it.
fn meaning(directive: &Directive) -> String {
    match List::of(directive.name) {
        Some(list) => format!("{} {}", directive.doc, list.in_words()),
        None => directive.doc.to_owned(),
    }
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// Lines of a doc comment as one paragraph.
fn sentence(doc: &str) -> String {
    doc.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}
