//! Ordered access lists: the first rule that matches decides.

use std::sync::Arc;

use humboldt_base::xxh3::{xxh3_64, xxh3_64_with_seed};
use humboldt_conf::{AccessRule, Need, RuleSource};

use crate::error::AclError;
use crate::matcher::{Last, Match, Term, all};
use crate::naming;
use crate::question::Question;
use crate::set::AclSet;
use crate::subject::Subject;

/// A list's result for a subject.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Allowed.
    Allowed {
        /// The rule that matched, counted from 0; `None` if none did.
        rule: Option<usize>,
    },
    /// Denied.
    Denied {
        /// The rule that matched, counted from 0; `None` if none did.
        rule: Option<usize>,
        /// The ACL that was checked last, of a group its member: it selects the `deny_info` page.
        last_acl: Option<&'a str>,
        /// It is one about users: as in Squid, the client is then asked for another login.
        wants_login: bool,
    },
    /// An ACL about users was reached, and the client has not logged in: the list ends there, and
    /// the client is to be asked for a login. Lists that ask nobody for one take it as a denial.
    Challenge {
        /// The ACL.
        acl: &'a str,
        /// The rule that it is in, counted from 0.
        rule: usize,
    },
    /// Not to be decided without this answer: get it and check again with it in
    /// [`Subject::known`]. Who is asked the same again after that, because there is no answer, has
    /// to refuse: the list cannot be answered at all.
    Needs(Question<'a>),
}

impl Verdict<'_> {
    /// Allowed.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

/// A compiled access list.
#[derive(Clone, Debug)]
pub struct RuleList {
    rules: Box<[Rule]>,
    /// The same for the same list of another configuration.
    identity: u64,
    /// The decision if no rule matches.
    otherwise_allow: bool,
    /// Where it comes from.
    otherwise: Option<Arc<RuleSource>>,
}

#[derive(Clone, Debug)]
struct Rule {
    allow: bool,
    terms: Box<[Term]>,
    source: Option<Arc<RuleSource>>,
}

impl RuleList {
    /// Compiles a list. `default_allow` holds if it is empty; if no rule matches, the opposite of
    /// the last one does.
    ///
    /// # Errors
    /// Every ACL in it that is not defined or cannot be evaluated. Such a rule is never skipped: a
    /// skipped `deny` would allow the requests that it denies.
    pub fn compile(
        acls: &AclSet,
        rules: &[AccessRule],
        default_allow: bool,
    ) -> Result<Self, Vec<AclError>> {
        let mut errors = Vec::new();
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            let mut terms = Vec::with_capacity(rule.terms.len());
            for term in &rule.terms {
                match acls.term(&term.name, term.negated) {
                    Ok(term) => terms.push(term),
                    Err(error) => errors.push(error),
                }
            }
            let (terms, source) = (terms.into_boxed_slice(), rule.source.clone());
            compiled.push(Rule { allow: rule.allow, terms, source });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let otherwise_allow = compiled.last().map_or(default_allow, |last| !last.allow);
        let last = compiled.last().and_then(|last| last.source.as_deref());
        let otherwise = last.map(|last| Arc::new(opposite(last)));
        let identity = compiled.first().and_then(|first| first.source.as_deref());
        let identity = identity.map_or(0, identity_of);
        Ok(Self { rules: compiled.into_boxed_slice(), identity, otherwise_allow, otherwise })
    }

    /// A number for the list, which other lists of a configuration do not have. The same list of
    /// another configuration has it too, if its lines are known: what is drawn for it stays so.
    pub fn identity(&self) -> u64 {
        match self.identity {
            0 => std::ptr::from_ref(self).addr() as u64,
            identity => identity,
        }
    }

    /// No rules: the default holds for everybody.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// The line of the rule that a verdict names; of `None`, the last one, whose opposite holds.
    pub fn source(&self, rule: Option<usize>) -> Option<&Arc<RuleSource>> {
        match rule {
            Some(index) => self.rules.get(index)?.source.as_ref(),
            None => self.otherwise.as_ref(),
        }
    }

    /// Whether some ACL of the list may need this fact.
    pub fn may_need(&self, need: Need) -> bool {
        let mut acls = self.rules.iter().flat_map(|rule| &rule.terms).map(|term| &term.acl);
        acls.any(|acl| acl.needs.contains(&need))
    }

    /// Whether the list allows the subject because of its destination: an ACL of this rule, which
    /// allows it, is about that, and matches none of the `others`, which differ from the subject in
    /// the destination alone. Or an earlier rule would deny all of them, as one with `!` does that
    /// spares a list of destinations. Without such a rule (`usize::MAX`) only the latter counts.
    pub fn names_destination(
        &self,
        rule: usize,
        subject: &Subject<'_>,
        others: &[Subject<'_>],
    ) -> bool {
        let allows = self.rules.get(rule).filter(|rule| rule.allow);
        let earlier = self.rules.iter().take(rule).filter(|rule| !rule.allow);
        allows.is_some_and(|rule| naming::is_any(&rule.terms, subject, others))
            || earlier.into_iter().any(|rule| naming::spares(&rule.terms, subject, others))
    }

    /// Whether this rule, which applies, does so because of the destination, whatever it says.
    pub fn is_about_destination(
        &self,
        rule: usize,
        subject: &Subject<'_>,
        others: &[Subject<'_>],
    ) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| naming::is_any(&rule.terms, subject, others))
    }

    /// Whether this rule, which has let the request in, would do so if its destination were that
    /// of the subject: all that it says about destinations holds. What else it says is not asked
    /// again. An earlier line that denies was asked about other addresses: where this destination
    /// does not rule it out, the whole list decides.
    pub fn leads_to(&self, rule: usize, subject: &Subject<'_>) -> bool {
        let earlier = self.rules.iter().take(rule).filter(|rule| !rule.allow);
        let rule = self.rules.get(rule).filter(|rule| rule.allow);
        rule.is_some_and(|rule| naming::all_hold(&rule.terms, subject))
            && !earlier.into_iter().any(|rule| naming::may_concern(&rule.terms, subject))
    }

    /// Decides, or names the fact that it needs first. Rules are examined in their order, and the
    /// ACLs of a rule in theirs, up to the first that does not match. So an ACL asks only if all
    /// before it in its rule match, and no earlier rule does.
    pub fn check(&self, subject: &Subject<'_>) -> Verdict<'_> {
        let mut last = None;
        for (index, rule) in self.rules.iter().enumerate() {
            match all(&rule.terms, subject, &mut last) {
                Match::No => {}
                Match::Challenge(acl) => return Verdict::Challenge { acl, rule: index },
                Match::Needs(question) => return Verdict::Needs(question),
                // Nobody is allowed by what cannot be told, and nobody escapes a refusal by it.
                Match::Never(_) if rule.allow || rule.differs(subject) => {}
                Match::Never(_) => return denied(Some(index), last),
                Match::Yes if rule.allow => return Verdict::Allowed { rule: Some(index) },
                Match::Yes => return denied(Some(index), last),
            }
        }
        match self.otherwise_allow {
            true => Verdict::Allowed { rule: None },
            false => denied(None, last),
        }
    }
}

/// What a rule says about a subject.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// It matches, and decides.
    Applies,
    /// It does not match: this ACL of it does not, or does if it is `negated`.
    Differs {
        /// The first such ACL.
        acl: &'a str,
        /// Behind `!`.
        negated: bool,
    },
    /// It asks for a login, and ends the list.
    Challenge(&'a str),
    /// Only the answer to this question can tell.
    Needs(Question<'a>),
}

impl RuleList {
    /// The rules up to the one that decides, each with what it says: for people who want to know
    /// why. [`RuleList::check`] has the decision.
    pub fn steps<'a>(
        &'a self,
        subject: &'a Subject<'_>,
    ) -> impl Iterator<Item = (Option<&'a RuleSource>, Step<'a>)> {
        let mut is_over = false;
        self.rules.iter().map_while(move |rule| {
            if is_over {
                return None;
            }
            let step = rule.step(subject);
            is_over = !matches!(step, Step::Differs { .. });
            Some((rule.source.as_deref(), step))
        })
    }
}

impl Rule {
    fn step<'a>(&'a self, subject: &Subject<'_>) -> Step<'a> {
        let steps = self.terms.iter().map(|term| match term.check(subject, &mut None) {
            Match::Yes => Step::Applies,
            Match::No => Step::Differs { acl: &term.acl.name, negated: term.negated },
            Match::Needs(question) => Step::Needs(question),
            Match::Challenge(acl) => Step::Challenge(acl),
            Match::Never(_) if !self.allow && !self.differs(subject) => Step::Applies,
            Match::Never(acl) => Step::Differs { acl, negated: term.negated },
        });
        steps.into_iter().find(|step| *step != Step::Applies).unwrap_or(Step::Applies)
    }

    /// Whether an ACL of the rule does not match, also behind one that cannot be told.
    #[cold]
    fn differs(&self, subject: &Subject<'_>) -> bool {
        self.terms.iter().any(|term| term.check(subject, &mut None) == Match::No)
    }
}

/// Of the list that begins with this line: of its directive, and of what it is about, as of a field
/// of `request_header_access`.
fn identity_of(first: &RuleSource) -> u64 {
    let mut words = first.text.split(' ');
    let directive = words.next().unwrap_or_default();
    let about = words.next().filter(|word| !matches!(*word, "allow" | "deny"));
    xxh3_64_with_seed(about.unwrap_or_default().as_bytes(), xxh3_64(directive.as_bytes()))
}

/// The reason of a decision that no rule has made.
fn opposite(last: &RuleSource) -> RuleSource {
    let list = last.text.split(' ').next().unwrap_or_default();
    let text = format!("{list}: no line applies, so the opposite of the last one holds");
    RuleSource { text, ..last.clone() }
}

fn denied(rule: Option<usize>, last: Last<'_>) -> Verdict<'_> {
    Verdict::Denied {
        rule,
        last_acl: last.map(|acl| &*acl.name),
        wants_login: last.is_some_and(|acl| acl.wants_login),
    }
}

#[cfg(test)]
mod tests {
    use humboldt_conf::parse_str;

    use super::*;

    fn identities(rules: &str) -> Vec<u64> {
        let (config, found) = parse_str("t", &format!("http_port 1\nacl a src all\n{rules}\n"));
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).unwrap();
        let list = |rules| RuleList::compile(&acls, rules, false).unwrap().identity();
        vec![list(&config.http_access), list(&config.miss_access)]
    }

    #[test]
    fn a_list_is_the_same_in_the_next_configuration() {
        let first = identities("http_access allow a\nmiss_access allow a");
        assert_eq!(
            first,
            identities("miss_access allow a\nhttp_access deny !a\nhttp_access allow a")
        );
        assert_ne!(first[0], first[1]);
    }
}
