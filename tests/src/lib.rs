//! Helpers shared by the integration tests, which run the built program beside real clients and
//! servers.
//!
//! Nothing here uses the proxy's own crates: an error in its reading of HTTP cannot hide behind the
//! same error in the test. `HUMBOLDT_BIN` names the program to test; otherwise cargo builds it.
//! Real Squid can take its place (`HUMBOLDT_BIN=/usr/sbin/squid`), which shows whether a scenario
//! demands the usual behaviour.
#![allow(
    clippy::print_stderr,
    reason = "a test says what it skips or measures where the test runner shows it"
)]

pub mod authority;
pub mod client;
pub mod dns;
pub mod message;
pub mod origin;
pub mod proxy;
pub mod scripts;
pub mod secured;
pub mod servers;
pub mod spaces;
pub mod wait;
pub mod world;

pub use client::{Client, Response, WEB_SOCKET};
pub use origin::{Origin, Reply};
pub use proxy::Proxy;
pub use scripts::Scripts;
pub use world::World;

/// The storage schemes that a test is for; `HUMBOLDT_TEST_SCHEMES=ring,ufs` chooses among them.
pub fn schemes(all: &[&'static str]) -> Vec<&'static str> {
    let wanted = std::env::var("HUMBOLDT_TEST_SCHEMES").ok();
    let is_wanted = |scheme: &&&str| {
        wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|w| w == **scheme))
    };
    all.iter().filter(is_wanted).copied().collect()
}

/// Says that a scenario cannot be played on this machine.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Says what a test has measured; `--nocapture` shows it.
pub fn note(what: &str) {
    eprintln!("measured: {what}");
}
