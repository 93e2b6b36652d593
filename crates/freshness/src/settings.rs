//! Decisions of the operator: settings of the cache, and rules from `refresh_pattern`.

/// The defaults of Squid's directives of the same names.
const DEFAULT_MAX_STALE_S: u32 = 7 * 24 * 3600;
const DEFAULT_MINIMUM_EXPIRY_TIME_S: u32 = 60;
const DEFAULT_PERCENT: f64 = 20.0;
const DEFAULT_MAX_S: u32 = 3 * 24 * 3600;

/// Settings of the whole cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A shared cache (a proxy), not a private one (RFC 9111 section 1).
    pub shared: bool,
    /// `negative_ttl`: how long an error without freshness information is kept, seconds; 0 is not
    /// at all.
    pub negative_ttl_s: u32,
    /// `max_stale`: how stale an answer may be served when the origin cannot be reached, seconds.
    pub max_stale_s: u32,
    /// `minimum_expiry_time`: an answer fresh for less, seconds, is kept only if it can be
    /// validated.
    pub minimum_expiry_time_s: u32,
    /// `reload_into_ims`: a client's reload validates instead of fetching again. Violates RFC 9111
    /// 5.2.1.4.
    pub reload_into_ims: bool,
    /// `refresh_all_ims`: a client's condition always validates with the origin.
    pub refresh_all_ims: bool,
    /// `offline_mode`: cached answers are served without validation. Violates RFC 9111 section 4.
    pub offline: bool,
    /// Names of the targeted fields this cache obeys, most specific first (RFC 9213 section 2.2).
    pub target_list: Vec<Box<[u8]>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shared: true,
            negative_ttl_s: 0,
            max_stale_s: DEFAULT_MAX_STALE_S,
            minimum_expiry_time_s: DEFAULT_MINIMUM_EXPIRY_TIME_S,
            reload_into_ims: false,
            refresh_all_ims: false,
            offline: false,
            target_list: Vec::new(),
        }
    }
}

/// One `refresh_pattern` rule without its pattern. The options violate RFC 9111 on the operator's
/// order.
#[derive(Clone, Debug, PartialEq)]
pub struct RefreshRule {
    /// Lifetime of an answer with neither explicit expiry nor Last-Modified, seconds.
    pub min_s: u32,
    /// Lifetime in percent of the time since the last modification (RFC 9111 section 4.2.2); may
    /// exceed 100.
    pub percent: f64,
    /// Bound on both, seconds.
    pub max_s: u32,
    /// `override-expire`: live for at least `min_s` even against an explicit expiry.
    pub override_expire: bool,
    /// `override-lastmod`: live for at least `min_s` even if modified recently.
    pub override_lastmod: bool,
    /// `reload-into-ims`: a client's reload validates instead of fetching again.
    pub reload_into_ims: bool,
    /// `ignore-reload`: a client's reload is ignored.
    pub ignore_reload: bool,
    /// `ignore-no-store`: store despite `no-store` in the answer.
    pub ignore_no_store: bool,
    /// `ignore-private`: store despite `private` in the answer.
    pub ignore_private: bool,
    /// `refresh-ims`: a client's If-Modified-Since is validated with the origin.
    pub refresh_ims: bool,
    /// `store-stale`: store answers that are neither fresh nor can be validated.
    pub store_stale: bool,
    /// `max-stale=`: instead of [`Settings::max_stale_s`], seconds.
    pub max_stale_s: Option<u32>,
}

impl RefreshRule {
    /// A rule without options; arguments as in the fields of the same names.
    pub const fn new(min_s: u32, percent: f64, max_s: u32) -> Self {
        Self {
            min_s,
            percent,
            max_s,
            override_expire: false,
            override_lastmod: false,
            reload_into_ims: false,
            ignore_reload: false,
            ignore_no_store: false,
            ignore_private: false,
            refresh_ims: false,
            store_stale: false,
            max_stale_s: None,
        }
    }
}

impl Default for RefreshRule {
    /// `refresh_pattern . 0 20% 4320`: the last one in the shipped configuration, used if no
    /// pattern matches.
    fn default() -> Self {
        Self::new(0, DEFAULT_PERCENT, DEFAULT_MAX_S)
    }
}
