//! What a list says about a request or its answer.

use humboldt_acl::{Question, RuleList, Verdict};

use crate::rules::denial::Refusal;

/// The answer of a list about a request or its answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision<'l> {
    /// The list allows, by the rule with this index or because none applies.
    Allowed(Option<usize>),
    /// The list denies.
    Denied(Denial<'l>),
    /// The list ends at this ACL, which asks the client for a login. For a list that asks no
    /// client this is a denial. The rule is that of the ACL, counted from 0.
    Challenge(&'l str, usize),
    /// Neither: an ACL needs this fact, which is not known.
    Unanswered(Question<'l>),
}

/// The ACL that a denial comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial<'l> {
    /// The ACL that was checked last.
    pub(super) last_acl: Option<&'l str>,
    /// It asks the client for another login.
    pub(super) wants_login: bool,
    /// The rule, counted from 0; `None` if none applied.
    pub(super) rule: Option<usize>,
}

impl<'l> Decision<'l> {
    pub(super) fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The rule that has decided, or `None` in it if none applied; `None` for a list that has no
    /// answer.
    pub(super) fn rule(self) -> Option<Option<usize>> {
        match self {
            Self::Allowed(rule) | Self::Denied(Denial { rule, .. }) => Some(rule),
            Self::Challenge(_, rule) => Some(Some(rule)),
            Self::Unanswered(_) => None,
        }
    }

    /// Whether it allows; `None` if the list has no answer.
    pub(super) fn allows(self) -> Option<bool> {
        self.answered().ok()
    }

    /// Whether it allows, or the question that has no answer: for a list that asks no client to log
    /// in, also the user of one who has not.
    pub(super) fn answered(self) -> Result<bool, Question<'l>> {
        match self {
            Self::Unanswered(question) => Err(question),
            Self::Challenge(acl, _) => Err(Question::User { acl }),
            decided => Ok(decided.is_allowed()),
        }
    }

    /// The decision as a permission. If the list denies, `denied` makes the refusal from the last
    /// ACL.
    pub(super) fn permits(
        self,
        list: &RuleList,
        denied: impl FnOnce(Option<&'l str>) -> Refusal,
    ) -> Result<(), Refusal> {
        match self {
            Self::Allowed(_) => Ok(()),
            Self::Denied(denial) => Err(denied(denial.last_acl).by(list.source(denial.rule))),
            Self::Challenge(acl, rule) => Err(denied(Some(acl)).by(list.source(Some(rule)))),
            Self::Unanswered(question) => Err(Refusal::unanswered(question)),
        }
    }
}

impl<'l> From<Verdict<'l>> for Decision<'l> {
    #[inline]
    fn from(verdict: Verdict<'l>) -> Self {
        match verdict {
            Verdict::Allowed { rule } => Self::Allowed(rule),
            Verdict::Denied { last_acl, wants_login, rule } => {
                Self::Denied(Denial { last_acl, wants_login, rule })
            }
            Verdict::Challenge { acl, rule } => Self::Challenge(acl, rule),
            Verdict::Needs(question) => Self::Unanswered(question),
        }
    }
}
