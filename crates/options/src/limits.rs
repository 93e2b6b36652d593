//! Options that every scheme with a disk has.

use crate::option::{self, DirOption, OptionDoc, Taken, Value, number};

/// Limits of the objects that a directory stores.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirLimits {
    /// `min-size=`: smaller objects are not stored here, in bytes.
    pub min_bytes: u64,
    /// `max-size=`: larger objects are not stored here, in bytes; `None` for no limit but that of
    /// the cache.
    pub max_bytes: Option<u64>,
    /// `no-store`, `read-only`: nothing new is stored.
    pub read_only: bool,
}

const OPTIONS: &[DirOption<DirLimits>] = &[
    DirOption {
        name: "min-size",
        value: number("bytes", 0, u64::MAX),
        unset: "",
        doc: "Smaller objects are not stored here.",
        set: |limits, bytes| limits.min_bytes = bytes,
        get: |limits| Some(limits.min_bytes),
    },
    DirOption {
        name: "max-size",
        value: Value::BytesOrNone,
        unset: "-1",
        doc: "Larger objects are not stored here; -1 is no limit but `maximum_object_size` and the scheme's own.",
        set: |limits, bytes| limits.max_bytes = (bytes != u64::MAX).then_some(bytes),
        get: |limits| limits.max_bytes,
    },
    DirOption {
        name: "no-store",
        value: Value::Flag,
        unset: "off",
        doc: "Nothing new is stored here; stored objects are served.",
        set: |limits, _| limits.read_only = true,
        get: |limits| limits.read_only.then_some(1),
    },
    DirOption {
        name: "read-only",
        value: Value::Flag,
        unset: "off",
        doc: "The same; its old name.",
        set: |limits, _| limits.read_only = true,
        get: |limits| limits.read_only.then_some(1),
    },
];

impl DirLimits {
    /// Sets the option called `name` to what stands behind `=`.
    pub fn set(&mut self, name: &str, written: Option<&str>) -> Taken {
        option::set(OPTIONS, self, name, written)
    }

    /// The options for the reference.
    pub fn docs() -> Vec<OptionDoc> {
        option::docs(OPTIONS)
    }
}
