//! Workloads: the requests, and the expected answers, byte by byte.
//!
//! Everything about an object follows by hash from its name and the seed, so that robots and
//! origins agree without communication: [`Workload::facts`]. The order of requests follows from the
//! seed as well: [`Stream`]. Nothing here reads a clock or a socket.

mod ask;
mod body;
mod builtin;
mod check;
mod check_types;
mod distribution;
mod error;
mod facts;
mod file;
mod ideal;
mod link;
mod math;
mod means;
mod mix;
mod name;
mod pages;
mod plan;
pub mod protocol;
mod replay;
mod stream;
mod units;
mod workload;

pub use ask::{Ask, AskKind, POST_BODY_BYTES_MAX};
pub use body::{BodyKey, Mismatch};
pub use error::WorkloadError;
pub use facts::{Facts, Version};
pub use ideal::{Ideal, simulate};
pub use link::{Delivery, Link, Steps};
pub use name::{OBJECT_BYTES_MAX, ObjectName};
pub use replay::{Replay, ReplayCounts, ReplayError};
pub use stream::Stream;
pub use workload::{ContentType, Mode, Workload};
