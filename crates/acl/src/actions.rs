//! Ordered lists whose rules have actions of their own: `ssl_bump` and the like.

use std::sync::Arc;

use humboldt_base::bump::{BumpAction, BumpStep};
use humboldt_conf::{AclTerm, BumpVerb, RuleSource};

use crate::error::AclError;
use crate::matcher::{Match, Term, all};
use crate::question::Question;
use crate::set::AclSet;
use crate::subject::{Late, Subject};

/// What an action does if its rule cannot be told for certain.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It lets something pass: the rule must apply for certain.
    Opens,
    /// It only asks for more, or guards.
    Neutral,
    /// It refuses: what cannot be told is refused.
    Closes,
}

impl Weight {
    /// That of a rule of `ssl_bump` at a step, after the action of the step before; `None`: what it
    /// says is not possible there.
    pub fn of_bump(verb: BumpVerb, step: BumpStep, before: Option<BumpAction>) -> Option<Self> {
        let action = verb.at(step).filter(|action| action.is_possible(step, before))?;
        Some(match action {
            BumpAction::Splice => Self::Opens,
            BumpAction::Terminate => Self::Closes,
            BumpAction::Peek | BumpAction::Stare | BumpAction::Bump => Self::Neutral,
        })
    }
}

/// A list's result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// The rule with this index applies.
    Rule(usize),
    /// This one closes, and nothing shows whether it applies: see [`ActionStep::Guards`].
    Guard(usize),
    /// None does.
    None,
    /// None does for certain, but one might: what it is about is not known yet.
    Later,
    /// None does for certain, but one might, and nothing will tell. See [`ActionStep::Untold`].
    Untold,
    /// Not to be decided without this answer, see [`crate::Verdict::Needs`].
    Needs(Question<'a>),
    /// This ACL asks for a login, and the client has none: there is no answer.
    Challenge(&'a str),
}

/// A compiled list.
#[derive(Clone, Debug)]
pub struct ActionList<A> {
    rules: Box<[ActionRule<A>]>,
}

#[derive(Clone, Debug)]
struct ActionRule<A> {
    action: A,
    terms: Box<[Term]>,
    source: Arc<RuleSource>,
}

/// What a rule says about a subject: for people who want to know why.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ActionStep<'a> {
    /// It applies, and decides.
    Applies,
    /// It closes, and would apply with a certificate that was to be seen here and was not: so it
    /// decides.
    Guards,
    /// Its action is not possible.
    Impossible,
    /// This ACL of it does not match, or does if it is negated.
    Differs {
        /// The first such ACL.
        acl: &'a str,
        /// Behind `!`.
        negated: bool,
    },
    /// It would apply, but because of a fact that is not known: so it lets nothing pass.
    Uncertain,
    /// Nothing can tell, because of this ACL.
    Untold(&'a str),
    /// Only the answer to this question can tell.
    Needs(Question<'a>),
    /// This ACL asks for a login.
    Challenge(&'a str),
}

impl<A> ActionList<A> {
    /// Compiles rules: each with its action, its ACLs and its line.
    ///
    /// # Errors
    /// Every ACL that is not defined or cannot be evaluated.
    pub fn compile<'r>(
        acls: &AclSet,
        rules: impl IntoIterator<Item = (A, &'r [AclTerm], &'r Arc<RuleSource>)>,
    ) -> Result<Self, Vec<AclError>> {
        let (mut errors, mut compiled) = (Vec::new(), Vec::new());
        for (action, written, source) in rules {
            let mut terms = Vec::with_capacity(written.len());
            for term in written {
                match acls.term(&term.name, term.negated) {
                    Ok(term) => terms.push(term),
                    Err(error) => errors.push(error),
                }
            }
            compiled.push(ActionRule { action, terms: terms.into(), source: Arc::clone(source) });
        }
        match errors.is_empty() {
            true => Ok(Self { rules: compiled.into() }),
            false => Err(errors),
        }
    }

    /// There are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The action and the line of a rule.
    pub fn rule(&self, index: usize) -> Option<(&A, &Arc<RuleSource>)> {
        self.rules.get(index).map(|rule| (&rule.action, &rule.source))
    }

    /// Whether some ACL of the list may need this fact.
    pub fn may_need(&self, need: humboldt_conf::Need) -> bool {
        let mut acls = self.rules.iter().flat_map(|rule| &rule.terms).map(|term| &term.acl);
        acls.any(|acl| acl.needs.contains(&need))
    }

    /// The first rule that applies, or the fact that is needed first. `weigh` says what an action
    /// does; `None`: it is not possible, so the rule is left out.
    ///
    /// The certificate of the server may not be known. Then an ACL about it does not match, as in
    /// Squid, and behind `!` it does. A rule that opens must apply also if it were the other way
    /// round. One that closes does already if it applies in the other way, where the certificate
    /// was to be seen, and was not: at the third step of `ssl_bump`.
    pub fn check(&self, subject: &Subject<'_>, weigh: impl Fn(&A) -> Option<Weight>) -> Choice<'_> {
        let mut otherwise = Choice::None;
        for (index, rule) in self.rules.iter().enumerate() {
            let Some(weight) = weigh(&rule.action) else { continue };
            match rule.step(subject, weight) {
                ActionStep::Applies => return Choice::Rule(index),
                ActionStep::Guards => return Choice::Guard(index),
                ActionStep::Needs(question) => return Choice::Needs(question),
                ActionStep::Challenge(acl) => return Choice::Challenge(acl),
                ActionStep::Untold(_) => otherwise = Choice::Untold,
                ActionStep::Uncertain if otherwise == Choice::None => otherwise = Choice::Later,
                ActionStep::Impossible | ActionStep::Differs { .. } | ActionStep::Uncertain => {}
            }
        }
        otherwise
    }

    /// The rules up to the one that decides, each with what it says.
    pub fn steps<'a>(
        &'a self,
        subject: &'a Subject<'_>,
        weigh: impl Fn(&A) -> Option<Weight> + 'a,
    ) -> impl Iterator<Item = (&'a RuleSource, ActionStep<'a>)> {
        let mut is_over = false;
        self.rules.iter().map_while(move |rule| {
            if is_over {
                return None;
            }
            let step = match weigh(&rule.action) {
                Some(weight) => rule.step(subject, weight),
                None => ActionStep::Impossible,
            };
            is_over = matches!(
                step,
                ActionStep::Applies
                    | ActionStep::Guards
                    | ActionStep::Needs(_)
                    | ActionStep::Challenge(_)
            );
            Some((&*rule.source, step))
        })
    }
}

impl<A> ActionRule<A> {
    fn step<'a>(&'a self, subject: &Subject<'_>, weight: Weight) -> ActionStep<'a> {
        let as_unknown = all(&self.terms, subject, &mut None);
        let if_matched = || {
            let late = Late { unknown_matches: true, ..*subject.late };
            all(&self.terms, &Subject { late: &late, ..*subject }, &mut None)
        };
        match (as_unknown, weight) {
            (Match::Needs(question), _) => ActionStep::Needs(question),
            (Match::Challenge(acl), _) => ActionStep::Challenge(acl),
            (Match::Yes, Weight::Opens) if if_matched() != Match::Yes => ActionStep::Uncertain,
            (Match::Yes, _) => ActionStep::Applies,
            (Match::Never(_), Weight::Closes) if !self.differs(subject) => ActionStep::Applies,
            (Match::Never(acl), _) if !self.differs(subject) => ActionStep::Untold(acl),
            (Match::No, Weight::Closes)
                if subject.has_hidden_server() && if_matched() == Match::Yes =>
            {
                ActionStep::Guards
            }
            (Match::Never(_) | Match::No, _) => self.difference(subject),
        }
    }

    /// Whether an ACL of the rule does not match, also behind one that cannot be told.
    #[cold]
    fn differs(&self, subject: &Subject<'_>) -> bool {
        self.terms.iter().any(|term| term.check(subject, &mut None) == Match::No)
    }

    fn difference<'a>(&'a self, subject: &Subject<'_>) -> ActionStep<'a> {
        let first = self.terms.iter().find(|term| term.check(subject, &mut None) != Match::Yes);
        match first {
            Some(term) => ActionStep::Differs { acl: &term.acl.name, negated: term.negated },
            None => ActionStep::Uncertain,
        }
    }
}
