//! What a list says about a request or its answer.

use humboldt_acl::{Question, RuleList, Verdict};

use crate::rules::denial::Refusal;

/// The answer of a list about a request or its answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision<'l> {
    /// The list allows.
    Allowed,
    /// The list denies.
    Denied(Denial<'l>),
    /// The list ends at this ACL, which asks the client for a login. For a list that asks no
    /// client this is a denial.
    Challenge(&'l str),
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
        self == Self::Allowed
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
            Self::Challenge(acl) => Err(Question::User { acl }),
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
            Self::Allowed => Ok(()),
            Self::Denied(denial) => Err(denied(denial.last_acl).by(list.source(denial.rule))),
            Self::Challenge(acl) => Err(denied(Some(acl))),
            Self::Unanswered(question) => Err(Refusal::unanswered(question)),
        }
    }
}

impl<'l> From<Verdict<'l>> for Decision<'l> {
    #[inline]
    fn from(verdict: Verdict<'l>) -> Self {
        match verdict {
            Verdict::Allowed { .. } => Self::Allowed,
            Verdict::Denied { last_acl, wants_login, rule } => {
                Self::Denied(Denial { last_acl, wants_login, rule })
            }
            Verdict::Challenge { acl } => Self::Challenge(acl),
            Verdict::Needs(question) => Self::Unanswered(question),
        }
    }
}
