//! Annotations of requests and of clients' connections.

use std::cell::RefCell;
use std::rc::Rc;

use humboldt_acl::{Annotated, RuleList};
use humboldt_base::notes::Notes;
use humboldt_logs::access::AccessRecord;

use crate::config::header_rules::Value;
use crate::helped::Facts;
use crate::request::Request;
use crate::rules::{format, login};

impl Annotated for Request {
    fn notes(&self) -> &RefCell<Notes> {
        &self.notes
    }

    fn client_notes(&self) -> &RefCell<Notes> {
        &self.facts().notes
    }

    fn formatted(&self, number: usize) -> Vec<u8> {
        let format = self.snapshot().note_rules.formats.get(number);
        format.map(|format| format::early(format, self)).unwrap_or_default()
    }
}

/// The notes of a request and of its connection, and the facts from helpers, before a list is
/// asked. Whoever asks it again, or asks what it would say, begins with the same, so that a rule
/// that sets a note and another one that looks for it do not see what an earlier try has set.
pub(crate) struct Before(Option<Kept>);

struct Kept {
    own: Notes,
    of_client: Notes,
    facts: Option<Rc<Facts>>,
    /// The login was known already, and what belongs to it is among the notes.
    has_login: bool,
}

impl Before {
    /// Remembers the notes, if an ACL may change them.
    pub(crate) fn of(request: &Request) -> Self {
        let snapshot = request.snapshot();
        let may_change = snapshot.note_rules.acls_annotate || !snapshot.externals.is_empty();
        Self(may_change.then(|| Kept {
            own: request.notes.borrow().clone(),
            of_client: request.facts().notes.borrow().clone(),
            facts: request.helped.facts(),
            has_login: request.login.get().is_some(),
        }))
    }

    /// Brings the notes back. A login that has become known since then has its notes.
    pub(crate) fn restore(&self, request: &Request) {
        self.restore_of_client(request);
        self.restore_own(request);
    }

    /// Brings those of the connection back, before a wait: later requests of the connection may set
    /// others meanwhile.
    pub(crate) fn restore_of_client(&self, request: &Request) {
        if let Some(kept) = &self.0 {
            request.facts().notes.borrow_mut().clone_from(&kept.of_client);
        }
    }

    /// Brings those of the request back, after a wait: the question may have been about them.
    pub(crate) fn restore_own(&self, request: &Request) {
        if let Some(kept) = &self.0 {
            request.helped.restore(kept.facts.clone());
            request.notes.borrow_mut().clone_from(&kept.own);
            if !kept.has_login {
                login::annotate(request);
            }
        }
    }

    /// The result of `ask`, which begins with these notes and changes none.
    pub(crate) fn what_if<T>(&self, request: &Request, ask: impl FnOnce() -> T) -> T {
        let now = Self::of(request);
        self.restore(request);
        let result = ask();
        now.restore(request);
        result
    }

    /// A step of a work that has notes of its own: it begins with these, which become those that it
    /// ends with. Nobody else sees them, also while the work waits, or if it is given up.
    pub(crate) fn apart<T>(&mut self, request: &Request, step: impl FnOnce() -> T) -> T {
        let now = Self::of(request);
        self.restore(request);
        let result = step();
        *self = Self::of(request);
        now.restore(request);
        result
    }

    /// The notes with which another request of the connection, with the same login, would begin.
    pub(crate) fn of_another(request: &Request) -> Self {
        let Self(now) = Self::of(request);
        Self(now.map(|kept| Kept {
            own: kept.of_client.clone(),
            of_client: kept.of_client,
            facts: None,
            has_login: false,
        }))
    }
}

/// Applies the lines of `note` to a request that has ended: of those with one name, the first whose
/// condition `is_met`.
pub(crate) fn add_at_end(
    request: &Request,
    record: &AccessRecord<'_>,
    is_met: impl Fn(&RuleList) -> bool,
) {
    let rules = &request.snapshot().note_rules.at_end;
    for (index, rule) in rules.iter().enumerate() {
        let is_first = |name: &str| !rules[..index].iter().any(|earlier| earlier.name == name);
        if !is_first(&rule.name) {
            continue;
        }
        let lines = rules[index..].iter().filter(|line| line.name == rule.name);
        let Some(line) = lines.into_iter().find(|line| is_met(&line.condition)) else { continue };
        let value = match &line.value {
            Value::Text(text) => text.clone(),
            Value::Format(format) => format::written(format, record),
        };
        request.notes.borrow_mut().add(&line.name, &value);
    }
}
