//! The workloads that come with the program.

/// In the order of help texts.
pub(crate) const NAMES: [&str; 8] = [
    "polymix-4",
    "webaxe-4",
    "datacomm-1",
    "uniform-unique",
    "package-mirror",
    "allow-list",
    "fixed-1k",
    "fixed-13k",
];

/// The file of replayed logs: types and times; sizes come from the log.
pub(crate) const REPLAY: &str = include_str!("../workloads/replay.toml");

pub(crate) fn text(name: &str) -> Option<&'static str> {
    Some(match name {
        "polymix-4" => include_str!("../workloads/polymix-4.toml"),
        "webaxe-4" => include_str!("../workloads/webaxe-4.toml"),
        "datacomm-1" => include_str!("../workloads/datacomm-1.toml"),
        "uniform-unique" => include_str!("../workloads/uniform-unique.toml"),
        "package-mirror" => include_str!("../workloads/package-mirror.toml"),
        "allow-list" => include_str!("../workloads/allow-list.toml"),
        "fixed-1k" => include_str!("../workloads/fixed-1k.toml"),
        "fixed-13k" => include_str!("../workloads/fixed-13k.toml"),
        _ => return None,
    })
}
