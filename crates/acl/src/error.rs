//! Why definitions or rules cannot be compiled.

use humboldt_conf::Location;
use thiserror::Error;

/// One ACL that cannot be used, and where it is defined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{location}: acl {acl}: {problem}")]
pub struct AclError {
    /// Name of the ACL.
    pub acl: String,
    /// Its definition; all zero if there is none.
    pub location: Location,
    /// The problem.
    pub problem: AclProblem,
}

/// A problem of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AclProblem {
    /// The kind is known, but cannot be evaluated, and a rule depends on it.
    #[error("type {kind} cannot be evaluated: {reason}")]
    Unsupported {
        /// Name of the kind.
        kind: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A value that the kind does not accept.
    #[error("`{value}` is not {expected}")]
    Value {
        /// The value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A host name among addresses that the resolver does not know now.
    #[error("`{host}` cannot be resolved: {reason}")]
    Unresolved {
        /// The name.
        host: String,
        /// The resolver's words.
        reason: String,
    },
    /// A regular expression that does not compile.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Regex {
        /// The expression.
        pattern: String,
        /// The compiler's words.
        reason: String,
    },
    /// Longer values in all than one ACL may have.
    #[error("the {what} have more than {bytes_max} bytes in all")]
    TooLarge {
        /// What the values are.
        what: &'static str,
        /// The bound.
        bytes_max: usize,
    },
    /// Fewer values than the kind needs.
    #[error("a value is missing")]
    Missing,
    /// A rule or a group names it, but nothing defines it.
    #[error("not defined")]
    Undefined,
    /// `any-of` and `all-of` refer to each other in a circle, or too deep.
    #[error("groups are nested in a circle or too deep")]
    Nesting,
}
