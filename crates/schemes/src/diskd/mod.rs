//! `diskd`: ufs's files, with all file operations done by a process of its own.
//!
//! The protocol is in `docs/formats/diskd.md`. From the outside in: this file opens a directory; `engine` turns what is asked of
//! files into calls; `service` starts and stops; `exchange` sends calls and takes replies; `keeper` looks after the
//! process; `helper` is that process; `link`, `protocol`, `call` and `record` each own one thing between the two.

mod call;
mod exchange;
mod helper;
mod keeper;
mod link;
mod protocol;
mod record;
mod service;
#[cfg(test)]
mod tests;

pub use self::helper::{COMMAND, HelperError, serve};
