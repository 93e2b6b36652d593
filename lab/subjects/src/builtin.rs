//! The built-in subject files.

/// Name of the family, and its file.
pub(crate) const FAMILIES: [(&str, &str); 6] = [
    ("squid", include_str!("../subjects/squid.toml")),
    ("squid-bump", include_str!("../subjects/squid-bump.toml")),
    ("humboldt", include_str!("../subjects/humboldt.toml")),
    ("nginx", include_str!("../subjects/nginx.toml")),
    ("trafficserver", include_str!("../subjects/trafficserver.toml")),
    ("varnish", include_str!("../subjects/varnish.toml")),
];
