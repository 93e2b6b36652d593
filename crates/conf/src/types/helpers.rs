//! Helper programs.

use std::time::Duration;

/// The processes of a helper program (`url_rewrite_children`, `auth_param … children`, options of
/// `external_acl_type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperChildren {
    /// Most of them.
    pub max: u32,
    /// Those that run from the start on.
    pub startup: u32,
    /// Those that are started whenever all others are busy.
    pub idle: u32,
    /// Questions that one of them may have at a time; 0: one, and lines without channel numbers.
    pub concurrency: u32,
    /// Questions that may wait for a process.
    pub queue_size: u32,
    /// Longest reservation of a process for one client while others wait.
    pub reservation_timeout: Duration,
}

impl HelperChildren {
    /// Most processes of one helper.
    pub const PROCESSES_MAX: u32 = 1024;

    /// Most questions that one process may have at a time.
    pub const CHANNELS_MAX: u32 = 4096;

    /// At most `max` processes, and Squid's defaults for everything else.
    pub fn new(max: u32) -> Self {
        Self {
            max,
            startup: 0,
            idle: 1,
            concurrency: 0,
            queue_size: max.saturating_mul(2),
            reservation_timeout: Duration::from_secs(64),
        }
    }
}

impl Default for HelperChildren {
    fn default() -> Self {
        Self::new(20)
    }
}
