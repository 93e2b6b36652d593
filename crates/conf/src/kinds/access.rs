//! Lists of rules that use ACLs.

use super::{Kind, units};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::lists::List;
use crate::suggest::suggest;
use crate::types::{
    AccessRule, AclTerm, DenyInfo, Location, ManagerPassword, MissingFilter, RuleSource, SizeRule,
    UpgradeRule,
};
use std::sync::Arc;

/// `allow|deny ACL…`
pub(crate) struct Rules;
/// `SIZE [ACL…]`
pub(crate) struct SizeRules;
/// `PROTOCOL allow|deny ACL…`
pub(crate) struct Upgrades;
/// `PAGE ACL…`
pub(crate) struct DenyInfos;
/// `PASSWORD PAGE…`
pub(crate) struct ManagerPasswords;
/// Names of filters that are not implemented; lines add up.
pub(crate) struct MissingFilters;

impl Kind for Rules {
    type Out = Vec<AccessRule>;
    const NAME: &'static str = "access rules";

    fn apply(out: &mut Vec<AccessRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        out.push(read_rule(line)?);
        Ok(())
    }
}

impl Kind for SizeRules {
    type Out = Vec<SizeRule>;
    const NAME: &'static str = "size and ACLs";

    fn apply(out: &mut Vec<SizeRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let limit_bytes = units::read_size(line, 1)?;
        out.push(SizeRule { limit_bytes, terms: read_terms(line)? });
        Ok(())
    }
}

impl Kind for Upgrades {
    type Out = Vec<UpgradeRule>;
    const NAME: &'static str = "protocol and access rules";

    fn apply(out: &mut Vec<UpgradeRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let protocol = line.expect("a protocol")?.text;
        out.push(UpgradeRule { protocol, rule: read_rule(line)? });
        Ok(())
    }
}

impl Kind for ManagerPasswords {
    type Out = Vec<ManagerPassword>;
    const NAME: &'static str = "password and pages";

    fn apply(out: &mut Vec<ManagerPassword>, line: &mut Line<'_>) -> Result<(), Problem> {
        let password = line.expect("a password, `none` or `disable`")?;
        let mut pages = vec![line.expect("the name of a page, or `all`")?.text];
        while let Some(page) = line.next()? {
            pages.push(page.text);
        }
        if !matches!(password.text.as_str(), "none" | "disable") {
            let name = line.name.clone();
            let message = "passwords are not asked for yet: nobody gets these pages";
            line.warn(
                &name,
                message,
                Some("write `none` to open them to those whom `http_access` lets"),
            );
        }
        out.push(ManagerPassword { is_open: password.text == "none", pages });
        Ok(())
    }
}

impl Kind for MissingFilters {
    type Out = Vec<MissingFilter>;
    const NAME: &'static str = "`adaptation`, `ssl_bump` or `sslcrtvalidator_program`";

    fn apply(out: &mut Vec<MissingFilter>, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut next = Some(line.expect("a filter")?);
        while let Some(token) = next {
            let known = MissingFilter::ALL.into_iter().find(|filter| filter.name() == token.text);
            match known {
                Some(filter) => out.push(filter),
                // Files of earlier versions.
                None if token.text == "url_rewrite" => {
                    let why = "`url_rewrite` has no effect here: `url_rewrite_program` is obeyed";
                    line.warn(&token, why, Some("remove the word"));
                }
                None => return Err(token.error(format!("`{}` is not {}", token.text, Self::NAME))),
            }
            next = line.next()?;
        }
        Ok(())
    }
}

impl Kind for DenyInfos {
    type Out = Vec<DenyInfo>;
    const NAME: &'static str = "page and ACLs";

    fn apply(out: &mut Vec<DenyInfo>, line: &mut Line<'_>) -> Result<(), Problem> {
        let page = line.expect("a page")?;
        let location = line.location(&page);
        let mut acls = Vec::new();
        while let Some(token) = line.next()? {
            match line.state.acl(&token.text) {
                Some(acl) => acls.push(acl.name.clone()),
                // Squid looks names up only when it needs them: no reason to refuse the line.
                None => line.warn(&token, format!("no ACL is named `{}`", token.text), None),
            }
        }
        if acls.is_empty() {
            line.warn(&line.name.clone(), "no ACL follows: this line has no effect", None);
            return Ok(());
        }
        out.push(DenyInfo { page: page.text, acls, location, text: None });
        Ok(())
    }
}

/// Reads `allow|deny ACL…`.
pub(super) fn read_rule(line: &mut Line<'_>) -> Result<AccessRule, Problem> {
    let action = line.expect("`allow` or `deny`")?;
    let allow = match action.text.as_str() {
        "allow" => true,
        "deny" => false,
        other => {
            let problem = action.error(format!("expected `allow` or `deny`, found `{other}`"));
            return Err(match suggest(&other.to_ascii_lowercase(), ["allow", "deny"]) {
                Some(word) => problem.with_help(format!("did you mean `{word}`?")),
                None => problem,
            });
        }
    };
    let terms = read_terms(line)?;
    if terms.is_empty() {
        // Squid skips such a line. A skipped `deny` would allow the requests that it denies.
        return Err(action
            .error("no ACL follows: it is not clear what this rule is about")
            .with_help(format!(
                "write `{} {} all` to mean everything",
                line.name.text, action.text
            )));
    }
    let source = source(line, &action, &terms);
    Ok(AccessRule { allow, terms, source: Some(source) })
}

/// The line of a rule as it is shown to people.
pub(super) fn source(line: &Line<'_>, action: &Token, terms: &[AclTerm]) -> Arc<RuleSource> {
    let mut text = format!("{} {}", line.name.text, action.text);
    for term in terms {
        text.push_str(if term.negated { " !" } else { " " });
        text.push_str(&term.name);
    }
    let Location { file, line, .. } = line.location(action);
    Arc::new(RuleSource { text, file, line })
}

/// Reads `[!]ACL…` up to the end of the line.
pub(super) fn read_terms(line: &mut Line<'_>) -> Result<Vec<AclTerm>, Problem> {
    let mut terms = Vec::new();
    while let Some(token) = line.next()? {
        terms.push(resolve(&token, line)?);
    }
    Ok(terms)
}

/// Finds the ACL that a word means. One that is not known is reported, and taken by its name.
fn resolve(token: &Token, line: &mut Line<'_>) -> Result<AclTerm, Problem> {
    let bare = token.text.trim_start_matches('!');
    let negations = token.text.len() - bare.len();
    if bare.is_empty() {
        return Err(token.error("the name of an ACL is missing after `!`"));
    }
    let negated = negations % 2 == 1;
    if let Some(acl) = line.state.acl(bare) {
        let term = AclTerm { name: acl.name.clone(), negated };
        let directive = crate::table::find(&line.name.text).map_or("", |directive| directive.name);
        let Some(list) = List::of(directive) else {
            return Err(token.error(format!("`{directive}` is not known to take ACLs")));
        };
        let reason = acl.unusable_in(list);
        *line.state.used.entry((bare.to_ascii_lowercase(), list)).or_default() |= reason.is_some();
        if let Some(reason) = reason {
            let why = format!("this rule cannot be evaluated: {reason}");
            let help = "remove the rule, or express it with other ACLs; it is never skipped, because that could \
                        allow what it is meant to deny";
            line.report(token.error(why).with_help(help));
        }
        return Ok(term);
    }
    let names = line.state.acls.values().map(|acl| acl.name.as_str());
    let mut problem = token.error(format!("no ACL is named `{bare}`"));
    if let Some(name) = suggest(bare, names) {
        problem = problem.with_help(format!("did you mean `{name}`?"));
    } else if matches!(bare, "allow" | "deny") {
        problem = problem.with_help(format!(
            "only ACLs follow here: remove `{bare}`, which older versions wrote"
        ));
    } else if crate::table::find(bare).is_some() {
        problem = problem.with_help(format!(
            "`{bare}` is a directive: were line breaks lost? Put each directive on a line of its own"
        ));
    }
    let index = line.report_index(problem);
    line.state.used_undefined(bare, index);
    Ok(AclTerm { name: bare.to_owned(), negated })
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    fn errors(text: &str) -> Vec<String> {
        let (_, diagnostics) = parse_str("t", &format!("http_port 1\n{text}"));
        let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error);
        errors.map(|d| format!("{} | {}", d.message, d.help.as_deref().unwrap_or(""))).collect()
    }

    #[test]
    fn tunnels_by_upgrade_for_all_where_those_by_connect_are_not_for_all_are_a_warning() {
        let warns = |text: &str| {
            let (_, diagnostics) =
                parse_str("t", &format!("http_port 1\n{text}http_access allow all\n"));
            assert!(!diagnostics.has_errors(), "{text}");
            diagnostics
                .iter()
                .any(|d| d.severity == Severity::Warning && d.message.contains("by Upgrade"))
        };
        let (deny, acl) = ("http_access deny CONNECT !safe\n", "acl safe port 443\n");
        let upgrade = |rule: &str| format!("{acl}{deny}http_upgrade_request_protocols {rule}\n");
        assert!(warns(&upgrade("websocket allow all")) && warns(&upgrade("OTHER allow all")));
        assert!(!warns(&upgrade("websocket allow safe")) && !warns(&upgrade("OTHER deny all")));
        assert!(!warns(&format!("{acl}{deny}")), "by default both have the same rules");
        assert!(!warns("http_upgrade_request_protocols websocket allow all\n"));
        assert!(!warns(&format!(
            "{acl}http_access deny !CONNECT\nhttp_upgrade_request_protocols own allow all\n"
        )));
    }

    #[test]
    fn rules_keep_order_negation_and_the_spelling_of_the_definition() {
        let text = "http_port 1\nacl LAN src 10.0.0.0/8\nhttp_access deny !lan CONNECT\nhttp_access allow all\n";
        let (config, diagnostics) = parse_str("t", text);
        assert!(!diagnostics.has_errors());
        let rule = &config.http_access[0];
        assert!(!rule.allow && rule.terms[0].negated && !rule.terms[1].negated);
        assert_eq!(rule.terms[0].name, "LAN");
        assert!(config.http_access[1].allow);
    }

    #[test]
    fn an_unknown_acl_is_an_error_with_a_suggestion() {
        let found = errors("acl localnet src 10.0.0.0/8\nhttp_access allow localnat\n");
        assert_eq!(found, ["no ACL is named `localnat` | did you mean `localnet`?"]);
    }

    #[test]
    fn an_acl_defined_too_late_is_explained() {
        let found = errors("http_access allow office\nacl office src 10.0.0.0/8\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("defined at t:3:5"), "{found:?}");
    }

    #[test]
    fn a_rule_that_cannot_be_evaluated_is_never_skipped() {
        let found =
            errors("acl users ident REQUIRED\nhttp_access deny !users\nhttp_access allow all\n");
        assert!(found[0].contains("cannot be evaluated: `users`"), "{found:?}");
        let nested = "acl users ident REQUIRED\nacl either any-of users localhost\nhttp_access allow either\n";
        assert!(errors(nested)[0].contains("`users`"));
    }

    #[test]
    fn what_only_an_answer_can_tell_is_refused_where_there_is_none_yet() {
        let acls = "acl video rep_mime_type ^video/\nacl bad http_status 500-599\nacl s rep_header Server x\n\
                    acl any any-of localhost video\n";
        for (rule, wrong) in [
            ("http_access deny video", 1),
            ("http_access deny any", 1),
            ("no_cache deny bad", 1),
            ("cache_peer p parent 1 0\ncache_peer_access p deny bad", 1),
            ("request_header_access Server deny bad", 1),
            ("reply_header_access Server deny bad s", 0),
            ("http_reply_access deny video bad s any", 0),
            ("reply_body_max_size 1 MB any", 0),
            ("access_log /x squid video bad", 0),
            ("access_log /x squid s", 1),
        ] {
            let found = errors(&format!("{acls}{rule}\n"));
            assert_eq!(found.len(), wrong, "{rule}: {found:?}");
        }
        let late = errors(&format!(
            "{acls}acl g any-of localhost\nhttp_access deny g\nacl g any-of bad\n"
        ));
        assert!(late.len() == 1 && late[0].contains("before there is an answer"), "{late:?}");
    }

    #[test]
    fn what_one_list_alone_knows_is_refused_in_others() {
        let acls = "acl up peername a\nacl up2 peername_regex ^a\nacl any any-of localhost up\n\
                    acl way hier_code HIER_DIRECT\nacl err squid_error ERR_DNS_FAIL\n";
        for (rule, wrong) in [
            ("tcp_outgoing_address 127.0.0.1 up up2 any", 0),
            ("http_access deny up", 1),
            ("http_access deny any", 1),
            ("access_log /x squid up2", 1),
            ("access_log /x squid way !err", 0),
            ("http_reply_access deny err", 1),
            ("on_unsupported_protocol tunnel err", 0),
            ("on_unsupported_protocol tunnel way", 1),
            ("tcp_outgoing_address 127.0.0.1 way", 1),
        ] {
            let found = errors(&format!("{acls}{rule}\n"));
            assert_eq!(found.len(), wrong, "{rule}: {found:?}");
            assert!(found.iter().all(|one| one.contains(" can decide about")), "{found:?}");
        }
    }

    #[test]
    fn what_says_nothing_about_answers_is_refused_where_they_are_judged() {
        let acls = "acl enc connections_encrypted\nacl any any-of localhost enc\n";
        for (rule, wrong) in [
            ("http_access deny !enc", 0),
            ("http_access deny any", 0),
            ("http_reply_access deny !enc", 1),
            ("http_reply_access deny any", 1),
            ("access_log /x squid enc", 1),
        ] {
            let found = errors(&format!("{acls}{rule}\n"));
            assert_eq!(found.len(), wrong, "{rule}: {found:?}");
            assert!(found.iter().all(|one| one.contains("say that of answers")), "{found:?}");
        }
    }

    #[test]
    fn the_old_form_of_size_limits_is_explained() {
        assert!(errors("reply_body_max_size 1024000 deny all\n")[0].contains("remove `deny`"));
    }

    #[test]
    fn a_group_that_becomes_unusable_later_is_found() {
        let text =
            "acl g any-of localhost\nacl h any-of g\nhttp_access deny h\nacl u ident REQUIRED\n";
        assert!(errors(text).is_empty());
        let found = errors(&format!("{text}acl g any-of u\n"));
        assert!(found.len() == 1 && found[0].contains("`u` is of type `ident`"), "{found:?}");
        let circle =
            "acl a any-of localhost\nacl b any-of a\nacl a any-of b\nhttp_access allow a\n";
        assert!(errors(circle).is_empty(), "the rules refuse circles");
    }

    #[test]
    fn a_rule_without_acls_is_refused() {
        assert!(errors("http_access deny\n")[0].contains("no ACL follows"));
        assert!(errors("http_access alow all\n")[0].contains("did you mean `allow`?"));
    }
}
