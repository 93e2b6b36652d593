//! `-k explain`: which rules a request meets, which one decides, and why.

mod asked;
mod budget;
mod bump;
mod destination;
mod end;
mod log;
mod unknown;

use std::fmt::Write as _;
use std::process::ExitCode;

use humboldt_acl::{Question, RuleList, Step, Verdict};
use humboldt_conf::{AccessRule, AclDef, Config, Need, RuleSource, Severity};
use humboldt_proxy::snapshot::Snapshot;

use crate::cli::Cli;
use crate::configuration::Source;
use asked::Asked;
use end::{End, ExplainError};
use unknown::{Missing, unknown_in};

/// Exit status for a request that is refused, or if a replayed log would change.
const REFUSED: u8 = 3;

/// Exit status for a request whose rules need a fact that only the running proxy knows.
const UNDECIDED: u8 = 4;

/// Carries out the command.
#[allow(clippy::print_stdout, clippy::print_stderr)]
pub(crate) fn run(cli: &Cli) -> ExitCode {
    match explain(cli) {
        Ok((text, end)) => {
            print!("{text}");
            match end {
                End::Allowed => ExitCode::SUCCESS,
                End::Refused => ExitCode::from(REFUSED),
                End::Undecided => ExitCode::from(UNDECIDED),
            }
        }
        Err(error) => {
            eprintln!("humboldt: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn explain(cli: &Cli) -> Result<(String, End), ExplainError> {
    let loaded = Source::of(cli)?.load(cli, Severity::Error, None)?;
    let snapshot = &*loaded.snapshot;
    if let Some(path) = &cli.against_log {
        return log::replay(snapshot, path);
    }
    let asked = Asked::of(cli, snapshot)?;
    request(snapshot, asked)
}

/// A list that a request meets: its directive, its rules, the decision without any, and what that
/// is about.
struct List<'a> {
    name: String,
    rules: Vec<AccessRule>,
    otherwise: bool,
    about: &'a str,
}

/// The lists about a request, in the order in which they are asked. Without rules they are left
/// out, but for `http_access`.
fn lists(config: &Config) -> Vec<List<'static>> {
    let list = |name: &str, rules: &[AccessRule], otherwise, about| List {
        name: name.to_owned(),
        rules: rules.to_vec(),
        otherwise,
        about,
    };
    let mut all = vec![
        list("http_access", &config.http_access, false, "may the client do this?"),
        list(
            "http_access_report_only",
            &config.http_access_report_only,
            true,
            "and by the rules on trial, which refuse nothing?",
        ),
        list("url_rewrite_access", &config.url_rewrite_access, true, "is the rewriter asked?"),
        list("adapted_http_access", &config.adapted_http_access, true, "may it after rewriting?"),
        list("store_id_access", &config.store_id_access, true, "is the store-id helper asked?"),
        list("cache", &config.cache, true, "may the cache be used?"),
        list("send_hit", &config.send_hit, true, "may a stored answer be sent?"),
        list("store_miss", &config.store_miss, true, "may the answer be stored?"),
        list(
            "miss_access",
            &config.miss_access,
            true,
            "if it is not in the cache: may a server be asked?",
        ),
        list("always_direct", &config.always_direct, false, "only the server itself?"),
        list("never_direct", &config.never_direct, false, "only parents?"),
    ];
    for line in &config.cache_peer_access {
        let name = format!("cache_peer_access {}", line.peer);
        match all.iter_mut().find(|list| list.name == name) {
            Some(list) => list.rules.push(line.rule.clone()),
            None => {
                all.push(list(&name, std::slice::from_ref(&line.rule), true, "by this parent?"))
            }
        }
    }
    all.retain(|list| list.name == "http_access" || !list.rules.is_empty());
    all
}

/// Whether the client is asked for a login, which comes before its tunnel.
fn asks_login(rules: &RuleList, asked: &Asked) -> bool {
    let verdict = rules.check(&asked.subject());
    matches!(verdict, Verdict::Challenge { .. } | Verdict::Denied { wants_login: true, .. })
}

/// Whether a denial by this list ends the request.
fn refuses(list: &List<'_>) -> bool {
    matches!(list.name.as_str(), "http_access" | "adapted_http_access" | "miss_access")
}

/// Whether refusals of this request are only reported: not those of the proxy's own pages and
/// PURGE.
fn reports_only(snapshot: &Snapshot, asked: &Asked) -> bool {
    let list = snapshot.report_only.as_ref();
    list.is_some_and(|list| {
        let subject = asked.subject();
        let acls = &snapshot.config.acl;
        let mut steps = list.steps(&subject).zip(&snapshot.config.report_only);
        may_be_reported_only(asked)
            && steps.all(|((_, step), rule)| {
                let is_known = !matches!(step, Step::Needs(_) | Step::Challenge(_));
                is_known && unknown_in(acls, &rule.terms, step, Missing::default()).is_none()
            })
            && matches!(list.check(&subject), Verdict::Allowed { rule: Some(_) })
    })
}

/// Whether refusals of such a request may be only reported.
fn may_be_reported_only(asked: &Asked) -> bool {
    !asked.is_purge() && !asked.is_for_own_page()
}

/// Why a PURGE is refused that the rules let in.
const NO_PURGE: &str = "PURGE is refused, as no ACL names it (docs/purging.md)";

/// Whether the request is refused because of [`NO_PURGE`].
fn is_void_purge(snapshot: &Snapshot, asked: &Asked) -> bool {
    asked.is_purge() && !snapshot.purge_is_enabled
}

fn request(snapshot: &Snapshot, mut asked: Asked) -> Result<(String, End), ExplainError> {
    let config = &snapshot.config;
    let mut out = format!("{}\n", asked.describe());
    for note in asked.notes(config) {
        let _ = writeln!(out, "note: {note}");
    }
    let mut end = End::Allowed;
    for list in lists(&snapshot.config) {
        let rules = RuleList::compile(&snapshot.acls, &list.rules, list.otherwise)?;
        asked.look_up_if(rules.may_need(Need::DstIps));
        let _ = writeln!(out, "\n{}: {}", list.name, list.about);
        let decision = of_list(&mut out, &list, &rules, &asked, &config.acl);
        if refuses(&list) && decision == End::Refused && reports_only(snapshot, &asked) {
            out.push_str("  only reported: report_only allows this request\n");
            continue;
        }
        if refuses(&list) && decision != End::Allowed {
            if decision == End::Refused && list.name == "http_access" && !asks_login(&rules, &asked)
            {
                bump::refused(&mut out, snapshot, &asked);
            }
            end = decision;
            break;
        }
        if list.name == "http_access" && is_void_purge(snapshot, &asked) {
            let _ = writeln!(out, "\n{NO_PURGE}.");
            end = End::Refused;
            break;
        }
    }
    if end == End::Allowed {
        end = bump::explain(&mut out, snapshot, &mut asked)?;
    }
    if end == End::Allowed {
        let direct = destination::explain(&mut out, snapshot, &asked);
        // A parent may be asked instead, and looks names up by itself.
        end = if config.cache_peer.is_empty() { direct } else { end };
    }
    if end == End::Allowed {
        budget::explain(&mut out, snapshot, &asked)?;
    }
    if end == End::Allowed && !config.http_reply_access.is_empty() {
        out.push_str("\nhttp_reply_access is asked about the answer, which is not known here.\n");
    }
    out.push_str(match end {
        End::Allowed => "\nThe request is let in.\n",
        End::Refused => "\nThe request is refused.\n",
        End::Undecided => "\nOnly the running proxy can decide.\n",
    });
    Ok((out, end))
}

/// Writes what each rule of a list says, and the decision.
fn of_list(
    out: &mut String,
    list: &List<'_>,
    rules: &RuleList,
    asked: &Asked,
    acls: &[AclDef],
) -> End {
    let subject = asked.subject();
    for ((source, step), rule) in rules.steps(&subject).zip(&list.rules) {
        let Some(source) = source else { continue };
        if let Some(acl) = unknown_in(acls, &rule.terms, step, Missing::default()) {
            let words = words(list, source);
            let _ = writeln!(
                out,
                "  {}: {words}: only the running proxy knows `{acl}`",
                source.place()
            );
            let _ = writeln!(out, "  → not known here");
            return End::Undecided;
        }
        let _ = writeln!(out, "  {}: {}: {}", source.place(), words(list, source), said(step));
    }
    let (end, text) = match rules.check(&subject) {
        Verdict::Allowed { rule: Some(_) } => (End::Allowed, "yes"),
        Verdict::Allowed { rule: None } if list.rules.is_empty() => (End::Allowed, "yes, no rules"),
        Verdict::Allowed { rule: None } => (End::Allowed, "yes: no rule applies, the last denies"),
        Verdict::Denied { rule: Some(_), .. } => (End::Refused, "no"),
        Verdict::Denied { .. } if list.rules.is_empty() => (End::Refused, "no, no rules"),
        Verdict::Denied { .. } => (End::Refused, "no: no rule applies, the last allows"),
        Verdict::Challenge { .. } => (End::Refused, "no: the client is asked for a login"),
        Verdict::Needs(_) => (End::Undecided, "not known here"),
    };
    let _ = writeln!(out, "  → {text}");
    end
}

/// The line of a rule without the name of its list.
fn words<'s>(list: &List<'_>, source: &'s RuleSource) -> &'s str {
    source.text.strip_prefix(&list.name).unwrap_or(&source.text).trim_start()
}

fn said(step: Step<'_>) -> String {
    match step {
        Step::Applies => "applies".to_owned(),
        Step::Differs { acl, negated: false } => format!("`{acl}` does not match"),
        Step::Differs { acl, negated: true } => format!("`{acl}` matches"),
        Step::Challenge(acl) => format!("`{acl}` needs a login (--user)"),
        Step::Needs(question) => format!("`{}` needs {}", question.acl(), missing(question)),
    }
}

fn missing(question: Question<'_>) -> &'static str {
    match question.need() {
        Need::DstIps => "the addresses of the host, which cannot be looked up (--dst)",
        Need::User => "a login (--user)",
        Need::Helper => "the answer of a helper, which only the running proxy asks",
        Need::ClientName => "the name of the client, which only the running proxy looks up",
        Need::Hardware => "the hardware address of the client",
        Need::Mark => "the mark of the client's connection",
        Need::Notes => "annotations",
        Need::Ident => "the ident protocol, which is not implemented",
    }
}
