//! `ssl_bump`: what becomes of the TLS in a tunnel, step by step.

use std::fmt::Write as _;

use humboldt_acl::{ActionStep, Choice, RuleList, Step, Weight};
use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ClientHello};
use humboldt_conf::{BumpVerb, Need};
use humboldt_proxy::snapshot::Snapshot;

use super::asked::Asked;
use super::end::{End, ExplainError};
use super::unknown::{Missing, unknown_in};
use super::{lists, of_list, refuses, said};

/// Writes what each rule says at the first two steps, and what can follow.
pub(super) fn explain(
    out: &mut String,
    snapshot: &Snapshot,
    asked: &mut Asked,
) -> Result<End, ExplainError> {
    let rules = &snapshot.ssl_bump;
    if !asked.is_intercepted() || rules.is_empty() {
        return Ok(End::Allowed);
    }
    asked.look_up_if(rules.may_need(Need::DstIps));
    let mut facts = BumpFacts::new(&String::from_utf8_lossy(asked.host()));
    let first = match step(out, snapshot, asked, &facts) {
        Ok(action) => action,
        Err(end) => return Ok(end),
    };
    match first {
        BumpAction::Terminate => return Ok(End::Refused),
        BumpAction::Splice => return Ok(End::Allowed),
        BumpAction::Bump | BumpAction::Peek | BumpAction::Stare => {}
    }
    let sni = asked.sni();
    match &sni {
        Some(name) => _ = writeln!(out, "\nThe client asks for {name} in TLS."),
        None => out.push_str("\nThe client names no server in TLS.\n"),
    }
    let (mut named, mut judged) = (None, End::Allowed);
    if let Some(name) = sni.as_deref().filter(|name| name.as_bytes() != asked.host()) {
        let mut other = asked.to_host(name)?;
        judged = asked_again(out, snapshot, asked, &mut other)?;
        // The proxy goes on with the name where the client has sent none before.
        named = asked.is_redirected().then_some(other);
    }
    if judged == End::Undecided {
        return Ok(judged);
    }
    let second = if first == BumpAction::Bump {
        first
    } else {
        facts.step = BumpStep::Two;
        facts.action = Some(first);
        facts.hello = Some(ClientHello { sni: sni.map(Into::into), ..ClientHello::default() });
        match step(out, snapshot, named.as_ref().unwrap_or(asked), &facts) {
            Ok(action) => action,
            Err(end) => return Ok(end),
        }
    };
    if judged == End::Refused {
        shown(out, second, false);
        return Ok(judged);
    }
    Ok(match second {
        BumpAction::Terminate => End::Refused,
        BumpAction::Splice | BumpAction::Bump => End::Allowed,
        BumpAction::Peek | BumpAction::Stare => third(out, snapshot, second),
    })
}

/// Writes what the client sees of a refusal of its tunnel, which `ssl_bump` decides.
pub(super) fn refused(out: &mut String, snapshot: &Snapshot, asked: &Asked) {
    if !asked.is_intercepted() || !asked.can_decrypt() || snapshot.ssl_bump.is_empty() {
        return;
    }
    let facts = BumpFacts::new(&String::from_utf8_lossy(asked.host()));
    if let Ok(action) = step(out, snapshot, asked, &facts) {
        shown(out, action, true);
    }
}

/// The end of a tunnel that was refused. `is_first`: CONNECT has no answer yet.
fn shown(out: &mut String, action: BumpAction, is_first: bool) {
    out.push_str(match action {
        BumpAction::Bump | BumpAction::Stare => {
            "The client sees the refusal inside of its tunnel, which is decrypted for that.\n"
        }
        BumpAction::Splice | BumpAction::Peek if is_first => "The refusal is the answer.\n",
        _ => "The client sees no page: the connection ends.\n",
    });
}

/// What can follow at the third step, at which the server has answered.
fn third(out: &mut String, snapshot: &Snapshot, second: BumpAction) -> End {
    let mut rules = snapshot.config.ssl_bump.iter();
    let guard = rules.find(|rule| rule.verb == BumpVerb::Do(BumpAction::Terminate));
    let otherwise = BumpAction::without_a_rule(Some(second)).name();
    let _ = match guard {
        None => writeln!(out, "\nssl_bump, step 3: only {otherwise} can follow"),
        Some(rule) => writeln!(
            out,
            "\nssl_bump, step 3: {otherwise}, unless `{}` ({}) or another such rule applies to \
             what the server shows",
            rule.source.text,
            rule.source.place()
        ),
    };
    if guard.is_some() { End::Undecided } else { End::Allowed }
}

/// The rules about requests are asked about the name too.
fn asked_again(
    out: &mut String,
    snapshot: &Snapshot,
    asked: &Asked,
    named: &mut Asked,
) -> Result<End, ExplainError> {
    let config = &snapshot.config;
    let differs = match asked.is_redirected() {
        true => (!asked.agrees_with(named)).then_some("the address is none of that name"),
        false => Some("that is another name than that of CONNECT"),
    };
    if let Some(how) = differs.filter(|_| config.host_verify_strict) {
        let _ = writeln!(out, "host_verify_strict: {how}\n  → no");
        return Ok(End::Refused);
    }
    if let Some(how) = differs.filter(|_| asked.is_redirected()) {
        let _ = writeln!(out, "note: {how}, so the connection leads to the address all the same");
    }
    for list in lists(config).iter().filter(|list| refuses(list) && list.name != "miss_access") {
        let rules = RuleList::compile(&snapshot.acls, &list.rules, list.otherwise)?;
        named.look_up_if(rules.may_need(Need::DstIps));
        let _ = writeln!(out, "\n{}, about {}:", list.name, named.describe());
        let end = of_list(out, list, &rules, named, &config.acl);
        if end != End::Allowed {
            return Ok(end);
        }
    }
    Ok(End::Allowed)
}

/// Writes what each rule says at a step, and the action.
fn step(
    out: &mut String,
    snapshot: &Snapshot,
    asked: &Asked,
    facts: &BumpFacts,
) -> Result<BumpAction, End> {
    let (step, before) = (facts.step, facts.action);
    let (number, known) = match step {
        BumpStep::One => (1, "addresses, and the host of CONNECT"),
        BumpStep::Two => (2, "the name that the client asks for"),
        BumpStep::Three => (3, "the certificate of the server"),
    };
    let _ = writeln!(out, "\nssl_bump, step {number}: known are {known}");
    let (config, rules) = (&snapshot.config, &snapshot.ssl_bump);
    let subject = humboldt_acl::Subject { bump: Some(facts), ..asked.subject() };
    let weigh = |verb: &BumpVerb| Weight::of_bump(*verb, step, before);
    let missing = Missing { not_tls: true, ..Missing::default() };
    for ((source, found), rule) in rules.steps(&subject, weigh).zip(&config.ssl_bump) {
        let words = source.text.strip_prefix("ssl_bump ").unwrap_or(&source.text);
        let place = source.place();
        let (text, as_step) = in_words(found);
        let unknown = as_step.and_then(|said| unknown_in(&config.acl, &rule.terms, said, missing));
        if let Some(acl) = unknown {
            let _ = writeln!(out, "  {place}: {words}: only the running proxy knows `{acl}`");
            out.push_str("  → not known here\n");
            return Err(End::Undecided);
        }
        let _ = writeln!(out, "  {place}: {words}: {text}");
    }
    let action = match rules.check(&subject, weigh) {
        Choice::Rule(index) | Choice::Guard(index) => {
            rules.rule(index).and_then(|(verb, _)| verb.at(step))
        }
        Choice::None => {
            let action = BumpAction::without_a_rule(before);
            let _ = writeln!(out, "  → {}, as no rule applies", action.name());
            return Ok(action);
        }
        doubt @ (Choice::Later | Choice::Untold) => {
            let action = BumpAction::in_doubt(step, before, doubt == Choice::Later);
            let _ = writeln!(out, "  → {}, as no rule applies for certain", action.name());
            return Ok(action);
        }
        Choice::Challenge(_) => Some(BumpAction::Terminate),
        Choice::Needs(_) => {
            out.push_str("  → not known here\n");
            return Err(End::Undecided);
        }
    };
    let action = action.unwrap_or(BumpAction::Terminate);
    let _ = writeln!(out, "  → {}", action.name());
    Ok(action)
}

/// What a rule says, and the same as of a rule of another list.
fn in_words(found: ActionStep<'_>) -> (String, Option<Step<'_>>) {
    let step = match found {
        ActionStep::Applies | ActionStep::Guards => Step::Applies,
        ActionStep::Differs { acl, negated } => Step::Differs { acl, negated },
        ActionStep::Needs(question) => Step::Needs(question),
        ActionStep::Challenge(acl) => Step::Challenge(acl),
        ActionStep::Impossible => return ("not possible at this step".to_owned(), None),
        ActionStep::Uncertain => {
            return ("depends on what is not known yet, so it lets nothing pass".to_owned(), None);
        }
        ActionStep::Untold(acl) => {
            return (format!("nothing tells whether `{acl}` matches, so it is left out"), None);
        }
    };
    (said(step), Some(step))
}
