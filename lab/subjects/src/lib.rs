//! The caches under test, and their environment.
//!
//! A [`SubjectFile`] describes in a few lines of TOML how a cache is configured, started and
//! stopped. An [`Environment`] is its folder and its stores: folders, or loop devices with a file
//! system, throttled like spindles. A [`Running`] subject is watched once a second and stopped with
//! everything that belongs to it. Every change of the machine is first reported to the [`Keeper`],
//! a process of its own, which undoes it should the laboratory die.

mod address;
mod attach;
mod builtin;
mod command;
mod control_group;
mod dirty;
mod disk;
mod environment;
mod error;
mod file;
mod host;
mod host_load;
mod installed;
mod ipc;
mod keeper;
mod machine;
mod processes;
mod processor;
mod provenance;
mod resources;
mod running;
mod start;
mod store;
mod stored;
mod subject_tls;
mod template;
mod undo;
mod words;

pub use attach::{attach, reach};
pub use dirty::OnlyLaboratory;
pub use disk::DiskSpeed;
pub use environment::{Environment, EnvironmentPlan, StoreKind, Throttle};
pub use error::SubjectError;
pub use file::{Mode, SubjectFile, SubjectTlsWay};
pub use host::{Host, Skipped};
pub use host_load::{HostLoad, Taken};
pub use keeper::{Keeper, keeper_main};
pub use machine::{machine_facts, manifest};
pub use processor::SteadySpeed;
pub use provenance::{build_of, machine, sha256, sha256_of_file};
pub use running::{Running, Stopped};
pub use start::{StartPlan, start};
pub use store::{check_disks, check_file_system};
pub use subject_tls::SubjectTls;
