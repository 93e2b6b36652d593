//! RFC 9111 as pure functions: storing, freshness, validation, invalidation.
//!
//! Nothing here reads a clock or does I/O: `now` is an argument, a head is borrowed, and the answer
//! is a small value. Times are unix seconds (`i64`), durations are seconds (`u32`, at most
//! [`MAX_SECONDS`]).
//!
//! The order in which a proxy asks:
//!
//! 1. [`CacheControl::of_request`] once per request;
//! 2. on a hit, [`judge`] decides between serving, serving while revalidating, validating and
//!    fetching again;
//! 3. on a miss, [`storability`] decides whether the answer may be kept, [`times`] condenses the
//!    facts that later judgements need into 48 bytes, and [`vary`] selects the request fields that
//!    belong to the key;
//! 4. on a 304, [`freshens`] and [`update_304`]; after an unsafe method, [`invalidates`].

mod directives;
mod encodings;
mod judge;
pub mod languages;
mod lifetime;
mod settings;
mod storability;
mod targeted;
#[cfg(test)]
mod testing;
mod times;
mod update;
pub mod vary;

pub use directives::{CacheControl, MAX_SECONDS};
pub use encodings::normal_encoding;
pub use judge::{Disposition, judge};
pub use lifetime::times;
pub use settings::{RefreshRule, Settings};
pub use storability::{WhyNot, is_shareable, may_stay, storability};
pub use times::{AHEAD_S_MAX, Times, TimesFlags, age, judged_at, ttl};
pub use update::{freshens, invalidates, update_304};
