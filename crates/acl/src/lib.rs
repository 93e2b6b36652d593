//! Access control: `acl` definitions compiled into matchers, and ordered lists of rules over them.
//!
//! [`AclSet::compile`] takes the definitions once per configuration; [`RuleList::compile`] takes
//! one access list. [`RuleList::check`] then answers for one [`Subject`], which borrows everything
//! from the request: no allocation, no lock, no name look-up. A rule that needs a further fact,
//! such as the addresses of the destination, returns [`Verdict::Needs`]; the caller gets the
//! answer, puts it into [`Known`], and asks again.

mod actions;
mod addresses;
mod annotations;
mod decode;
mod domains;
mod error;
mod externals;
mod literals;
mod matcher;
mod naming;
mod question;
mod ranges;
mod regexes;
mod required;
mod rules;
mod schedule;
mod set;
mod subject;
mod tls;
mod users;

pub use actions::{ActionList, ActionStep, Choice, Weight};
pub use annotations::Annotated;
pub use error::{AclError, AclProblem};
pub use externals::External;
pub use question::{Known, Login, Question};
pub use rules::{RuleList, Step, Verdict};
pub use set::AclSet;
pub use subject::{Late, Subject, Told};
