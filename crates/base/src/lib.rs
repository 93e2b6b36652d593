//! Parts that every other crate may use: named limits, the clock, dates, seeded randomness, XXH3,
//! wrapping of Markdown, annotations, token buckets, networks of clients, and the table of
//! counters. Nothing here does I/O.

pub mod bump;
pub mod certificate;
pub mod civil;
pub mod client_network;
pub mod clock;
pub mod counters;
pub mod limits;
pub mod notes;
pub mod prose;
pub mod rng;
pub mod seldom;
pub mod token_bucket;
pub mod vital;
pub mod xxh3;
