//! Annotations of transactions and of clients' connections.

use super::AclTerm;

/// One `NAME=VALUE` or `NAME+=VALUE` of an ACL that annotates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: String,
    /// `+=`: it joins older ones of the name; otherwise it takes their place.
    pub appends: bool,
    /// Its value; may contain `logformat` codes when `formatted`.
    pub value: String,
    /// True when the value was quoted, so that `%` codes in it are to be expanded.
    pub formatted: bool,
}

/// One line of `note`: an annotation of the transactions that match all terms, made at their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRule {
    /// Its name.
    pub name: String,
    /// Its value; may contain `logformat` codes when `formatted`.
    pub value: String,
    /// True when the value was quoted, so that `%` codes in it are to be expanded.
    pub formatted: bool,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}
