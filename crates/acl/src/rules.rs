//! Ordered access lists: the first rule that matches decides.

use humboldt_conf::{AccessRule, Need};

use crate::error::AclError;
use crate::matcher::{Last, Match, Term, all};
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
    /// The decision if no rule matches.
    otherwise_allow: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    allow: bool,
    terms: Box<[Term]>,
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
            compiled.push(Rule { allow: rule.allow, terms: terms.into_boxed_slice() });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let otherwise_allow = compiled.last().map_or(default_allow, |last| !last.allow);
        Ok(Self { rules: compiled.into_boxed_slice(), otherwise_allow })
    }

    /// No rules: the default holds for everybody.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether some ACL of the list may need this fact.
    pub fn may_need(&self, need: Need) -> bool {
        let mut acls = self.rules.iter().flat_map(|rule| &rule.terms).map(|term| &term.acl);
        acls.any(|acl| acl.needs.contains(&need))
    }

    /// Decides, or names the fact that it needs first. Rules are examined in their order, and the
    /// ACLs of a rule in theirs, up to the first that does not match. So an ACL asks only if all
    /// before it in its rule match, and no earlier rule does.
    pub fn check(&self, subject: &Subject<'_>) -> Verdict<'_> {
        let mut last = None;
        for (index, rule) in self.rules.iter().enumerate() {
            match all(&rule.terms, subject, &mut last) {
                Match::No => {}
                Match::Challenge(acl) => return Verdict::Challenge { acl },
                Match::Needs(question) => return Verdict::Needs(question),
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

fn denied(rule: Option<usize>, last: Last<'_>) -> Verdict<'_> {
    Verdict::Denied {
        rule,
        last_acl: last.map(|acl| &*acl.name),
        wants_login: last.is_some_and(|acl| acl.wants_login),
    }
}
