//! What helper programs have told about a request.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_helpers::{NoAnswer, Reply};

/// Most different questions of one request to helpers of `external_acl_type` whose answers it
/// remembers; the answers to further ones are not used.
const ANSWERS_MAX: usize = 64;

/// See the module's text. A copy of the request shares it.
#[derive(Default)]
pub(crate) struct Helped {
    facts: RefCell<Option<Rc<Facts>>>,
    /// The answers that ACLs have got.
    answers: RefCell<Vec<Answered>>,
    /// Why the last question without an answer has none.
    failure: RefCell<Option<NoAnswer>>,
}

/// The answer to the question of an ACL.
struct Answered {
    acl: usize,
    question: Vec<u8>,
    reply: Arc<Reply>,
}

/// Facts from answers.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    /// `user=`.
    pub(crate) user: Option<Box<[u8]>>,
    /// `password=`. It is for a parent only (`login=PASS`).
    pub(crate) password: Option<Box<[u8]>>,
    /// `tag=`: the first one stays.
    pub(crate) tag: Option<Box<[u8]>>,
    /// `log=`.
    pub(crate) log: Option<Box<[u8]>>,
    /// `message=`.
    pub(crate) message: Option<Box<[u8]>>,
}

impl Helped {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self.facts.get_mut() = None;
        self.answers.get_mut().clear();
        *self.failure.get_mut() = None;
    }

    /// The facts, if there are any.
    pub(crate) fn facts(&self) -> Option<Rc<Facts>> {
        self.facts.borrow().clone()
    }

    /// Brings earlier facts back.
    pub(crate) fn restore(&self, facts: Option<Rc<Facts>>) {
        *self.facts.borrow_mut() = facts;
    }

    /// Takes the facts of an answer over, as Squid does: the tag only if there is none yet.
    pub(crate) fn learn(&self, reply: &Reply) {
        let value = |key| reply.get(key).filter(|value| !value.is_empty());
        if ["user", "password", "tag", "log", "message"].iter().all(|key| value(key).is_none()) {
            return;
        }
        let mut facts = self.facts.borrow_mut();
        let facts = Rc::make_mut(facts.get_or_insert_default());
        let set = |fact: &mut Option<Box<[u8]>>, key| {
            if let Some(value) = value(key) {
                *fact = Some(value.into());
            }
        };
        set(&mut facts.user, "user");
        set(&mut facts.password, "password");
        set(&mut facts.log, "log");
        set(&mut facts.message, "message");
        if facts.tag.is_none() {
            set(&mut facts.tag, "tag");
        }
    }

    /// The answer to a question that this request has asked before.
    pub(crate) fn answer(&self, number: usize, question: &[u8]) -> Option<Arc<Reply>> {
        let answers = self.answers.borrow();
        let mut answers = answers.iter();
        let found = answers.find(|one| one.acl == number && *one.question == *question);
        found.map(|one| Arc::clone(&one.reply))
    }

    /// Remembers an answer, or the lack of one. `false`: there is none to use.
    pub(crate) fn remember(
        &self,
        number: usize,
        question: Vec<u8>,
        told: Result<Arc<Reply>, NoAnswer>,
    ) -> bool {
        let mut answers = self.answers.borrow_mut();
        match told {
            Ok(reply) if answers.len() < ANSWERS_MAX => {
                answers.push(Answered { acl: number, question, reply });
                true
            }
            Ok(_) => false,
            Err(why) => {
                *self.failure.borrow_mut() = Some(why);
                false
            }
        }
    }

    /// Why a helper has no answer, if one has none.
    pub(crate) fn failure(&self) -> Option<NoAnswer> {
        self.failure.borrow().clone()
    }
}
