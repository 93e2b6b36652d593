//! Helper programs, with Squid's protocol: child processes that get one line for each question, and
//! answer with one line.
//!
//! All cores share the processes. They belong to a thread of their own ([`Helpers`]). A core asks
//! through a [`Helper`]: under a short lock the question gets a process, or a place in the queue.
//! The thread sends it, and wakes the task that waits for the answer through the mailbox of its
//! core. A task that is dropped gives its place in the queue back.
//!
//! Nothing here brings the proxy down. Where there is no answer, there is a [`NoAnswer`] with the
//! reason, and the asker decides; for a rule it must never mean "allow".
//!
//! ```no_run
//! # async fn example(
//! #     helpers: humboldt_helpers::Helpers,
//! #     children: humboldt_conf::HelperChildren,
//! # ) -> std::io::Result<()> {
//! use humboldt_helpers::{Definition, Kind, Outcome};
//!
//! let command = vec!["/usr/lib/squid/basic_ncsa_auth".to_owned(), "/etc/users".to_owned()];
//! let definition = Definition::new(Kind::BasicAuthenticator, "basic", command, children);
//! // At the start and in each reconfiguration: all that are wanted from now on.
//! let helper = helpers.adopt(vec![definition])?.remove(0);
//! // On a core.
//! match helper.ask(b"user password").await {
//!     Ok(reply) if reply.outcome == Outcome::Ok => println!("{:?}", reply.get("group")),
//!     Ok(_) => println!("no"),
//!     Err(why) => println!("nobody knows: {why}"),
//! }
//! # Ok(())
//! # }
//! ```

mod answers;
mod asking;
mod child;
mod definition;
mod flight;
mod keeper;
mod no_answer;
mod notices;
mod pool;
mod reply;
mod service;
mod state;
mod statistics;
#[cfg(test)]
mod tests;

pub use answers::{Answers, Keeping};
pub use asking::{Asking, Reservation, Reserving};
pub use definition::{Definition, Kind, Overload};
pub use no_answer::NoAnswer;
pub use pool::Helper;
pub use reply::{Outcome, Reply};
pub use service::Helpers;
pub use statistics::{ChildStatistics, Statistics};
