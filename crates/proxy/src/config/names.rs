//! Names of this proxy, and the field values made from them.

use humboldt_conf::Config;
use humboldt_http::Version;

use super::cache_status::CacheStatus;

/// Names of this proxy, and the field values made from them.
pub struct Names {
    /// `visible_hostname`, or the machine's name.
    pub hostname: String,
    /// The name in Via, which detects loops (`unique_hostname`).
    pub unique: String,
    /// `cache_mgr`.
    pub contact: String,
    /// Values of X-Cache and Cache-Status.
    pub(crate) cache_status: CacheStatus,
    /// Values of Via, by the version of the received message.
    via: Option<[Box<[u8]>; 3]>,
}

impl Names {
    pub(super) fn new(config: &Config) -> Self {
        let hostname = config.visible_hostname.clone().unwrap_or_else(machine_name);
        let unique = config.unique_hostname.clone().unwrap_or_else(|| hostname.clone());
        let version = if config.httpd_suppress_version_string {
            ""
        } else {
            concat!("/", env!("CARGO_PKG_VERSION"))
        };
        let via = |protocol: Version| {
            let number = protocol.number();
            format!("{number} {unique} (humboldt{version})").into_bytes().into_boxed_slice()
        };
        let all = || [Version::Http10, Version::Http11, Version::Http2].map(via);
        Self {
            cache_status: CacheStatus::new(&hostname, &unique),
            via: config.via.then(all),
            contact: config.cache_mgr.clone(),
            hostname,
            unique,
        }
    }

    /// Our element of Via for a message received in `version`; `None` when `via` is off.
    pub fn via(&self, version: Version) -> Option<&[u8]> {
        let [http10, http11, http2] = self.via.as_ref()?;
        Some(match version {
            Version::Http10 => http10,
            Version::Http11 => http11,
            Version::Http2 => http2,
        })
    }
}

/// The machine's host name, or `localhost` if it has none that is valid in a header.
pub(crate) fn machine_name() -> String {
    let name = humboldt_sys::host::name();
    let usable = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if usable { name } else { "localhost".to_owned() }
}
