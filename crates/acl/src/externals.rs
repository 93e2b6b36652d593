//! ACLs whose answers come from helper programs.

use std::fmt;

use crate::matcher::{Acl, Match};
use crate::question::{Login, Question};
use crate::subject::Subject;

/// An ACL `external`: the question that its helper is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Its name.
    pub acl: Box<str>,
    /// The name of its `external_acl_type`.
    pub helper: Box<str>,
    /// Its arguments.
    pub arguments: Box<[String]>,
}

/// The facts about a transaction that helpers have told, for ACLs.
pub trait Told {
    /// Whether the helper says that the ACL matches; `None` if it has not been asked, or if there
    /// is no answer. The number is that of [`crate::AclSet::externals`]. What the answer says about
    /// the user and the rest is true of the transaction from now on.
    fn external(&self, number: usize, subject: &Subject<'_>) -> Option<bool>;

    /// Calls `test` with the user whom a helper has named, if one has.
    fn ext_user(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;

    /// Calls `test` with the tag that a helper has set, if one has.
    fn tag(&self, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

impl fmt::Debug for dyn Told + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

impl Acl {
    /// Asks for the answer of the helper. As in Squid, a question that names a user needs a login
    /// first.
    pub(crate) fn external(
        &self,
        number: usize,
        needs_user: bool,
        subject: &Subject<'_>,
    ) -> Match<'_> {
        if needs_user {
            match subject.known.login {
                Some(Login::User(_)) => {}
                Some(Login::Missing) => return Match::Challenge(&self.name),
                None => return Match::Needs(Question::User { acl: &self.name }),
            }
        }
        let answer = subject.told.and_then(|told| told.external(number, subject));
        answer.map_or(Match::Needs(Question::Helper { acl: &self.name, number }), Match::from)
    }
}
