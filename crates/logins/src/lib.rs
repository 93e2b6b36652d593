//! Logins of clients: who a client is, by the credentials that it sends.
//!
//! [`Logins::remembered`] answers from the results of earlier checks, without waiting and without
//! an allocation. [`Logins::check`] checks credentials: against a password file, on threads of its
//! own, because a check is meant to be slow, or by a helper program. A password is kept only while
//! its check waits or runs. What stays is a keyed hash of the credentials, of which the key never
//! leaves the process.
//!
//! With the schemes Negotiate and NTLM a connection logs in, not a request: what is known about it
//! is in its [`ConnectionLogin`], and nowhere else.

mod addresses;
mod basic;
mod checker;
mod connection;
mod delays;
mod digest;
mod digest_users;
mod failure;
mod handshake;
mod hash;
mod md5_crypt;
mod nonces;
mod password_file;
mod program;
mod remembered;
mod service;
mod user;

pub use connection::ConnectionLogin;
pub use failure::Failure;
pub use service::{Login, Logins, Running};
pub use user::{Checked, Handshake, Told, User};
