//! Field names the proxy knows, as small integers.
//!
//! One table gives the variants, their wire names and a collision-free hash computed at compile
//! time, so that recognising a name costs one multiplication, one load and one comparison.

/// Declares [`FieldName`] and the table of wire names from one list.
macro_rules! field_names {
    ($($variant:ident = $wire:literal),* $(,)?) => {
        /// A field name known to the proxy, or [`FieldName::Other`].
        #[repr(u8)]
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
        pub enum FieldName {
            /// Any name without an entry in the table; its text is in the head.
            #[default]
            Other,
            $(
                #[doc = concat!("`", $wire, "`")]
                $variant,
            )*
        }

        /// Every variant with its wire name, indexed by the variant's number.
        const TABLE: &[(FieldName, &str)] = &[(FieldName::Other, ""), $((FieldName::$variant, $wire)),*];
    };
}

field_names! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    AcceptRanges = "Accept-Ranges",
    Age = "Age",
    Allow = "Allow",
    AltSvc = "Alt-Svc",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    CacheStatus = "Cache-Status",
    CdnCacheControl = "CDN-Cache-Control",
    CdnLoop = "CDN-Loop",
    Connection = "Connection",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLength = "Content-Length",
    ContentLocation = "Content-Location",
    ContentMd5 = "Content-MD5",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    Etag = "ETag",
    Expect = "Expect",
    Expires = "Expires",
    Forwarded = "Forwarded",
    From = "From",
    Host = "Host",
    Http2Settings = "HTTP2-Settings",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Link = "Link",
    Location = "Location",
    MaxForwards = "Max-Forwards",
    Origin = "Origin",
    Pragma = "Pragma",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthenticationInfo = "Proxy-Authentication-Info",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection",
    Range = "Range",
    Referer = "Referer",
    RetryAfter = "Retry-After",
    Server = "Server",
    SetCookie = "Set-Cookie",
    StrictTransportSecurity = "Strict-Transport-Security",
    SurrogateCapability = "Surrogate-Capability",
    SurrogateControl = "Surrogate-Control",
    Te = "TE",
    Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    Warning = "Warning",
    WwwAuthenticate = "WWW-Authenticate",
    XCache = "X-Cache",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
}

impl FieldName {
    /// The known name equal to `name` without regard to case (RFC 9110 5.1), or
    /// [`FieldName::Other`].
    #[inline]
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> FieldName {
        let (Some(&first), Some(&last), Some(&middle)) =
            (name.first(), name.last(), name.get(name.len() / 2))
        else {
            return FieldName::Other;
        };
        let slot = slot(features(name.len(), first, middle, last), SEED);
        let index = SLOTS.get(slot).copied().unwrap_or(0);
        match TABLE.get(usize::from(index)) {
            // Nearly every sender uses the usual spelling, and equality is the cheaper comparison.
            Some((id, wire))
                if wire.as_bytes() == name || wire.as_bytes().eq_ignore_ascii_case(name) =>
            {
                *id
            }
            _ => FieldName::Other,
        }
    }

    /// The usual spelling; empty for [`FieldName::Other`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        TABLE.get(usize::from(self as u8)).map_or("", |(_, wire)| wire)
    }

    /// This name's bit in a set of names.
    #[inline]
    pub(crate) const fn bit(self) -> u128 {
        1 << (self as u8)
    }
}

/// The set of `names` as bits.
pub(crate) const fn set_of(names: &[FieldName]) -> u128 {
    let mut set = 0;
    let mut i = 0;
    while i < names.len() {
        set |= names[i].bit();
        i += 1;
    }
    set
}

// The bit sets have 128 places.
const _: () = assert!(TABLE.len() <= 128);

/// Slots of the hash table: a power of two, about eight for each name so that a perfect seed is
/// found soon.
const SLOT_COUNT: usize = 512;

/// The features that distinguish the known names: length and three letters, case folded.
const fn features(len: usize, first: u8, middle: u8, last: u8) -> u32 {
    // Longer names than 255 bytes alias shorter ones here; the comparison that follows rejects
    // them.
    u32::from_le_bytes([(len & 0xff) as u8, first | 0x20, middle | 0x20, last | 0x20])
}

/// The slot of a name with these features.
const fn slot(features: u32, seed: u32) -> usize {
    (features.wrapping_mul(seed) >> 23) as usize % SLOT_COUNT
}

/// Fills the slots for `seed`; `None` when two names collide.
const fn fill(seed: u32) -> Option<[u8; SLOT_COUNT]> {
    let mut slots = [0u8; SLOT_COUNT];
    let mut i = 1;
    while i < TABLE.len() {
        let name = TABLE[i].1.as_bytes();
        let at =
            slot(features(name.len(), name[0], name[name.len() / 2], name[name.len() - 1]), seed);
        if slots[at] != 0 {
            return None;
        }
        slots[at] = i as u8;
        i += 1;
    }
    Some(slots)
}

/// The first multiplier without collisions; the build fails if the search ends without one.
const SEED: u32 = {
    let mut seed: u32 = 0x9e37_79b1;
    while fill(seed).is_none() {
        seed = seed.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35e);
    }
    seed
};

/// Slot to index in [`TABLE`]; 0 = empty.
static SLOTS: [u8; SLOT_COUNT] = match fill(SEED) {
    Some(slots) => slots,
    None => [0; SLOT_COUNT],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (id, wire) in TABLE.iter().skip(1) {
            assert_eq!(FieldName::from_bytes(wire.as_bytes()), *id);
            assert_eq!(FieldName::from_bytes(wire.to_ascii_lowercase().as_bytes()), *id);
            assert_eq!(FieldName::from_bytes(wire.to_ascii_uppercase().as_bytes()), *id);
            assert_eq!(id.as_str(), *wire);
        }
    }

    #[test]
    fn near_misses_are_other() {
        for name in ["", "A", "Hosts", "Hast", "Content_Length", "Content-Lengti", "X-Foo"] {
            assert_eq!(FieldName::from_bytes(name.as_bytes()), FieldName::Other, "{name}");
        }
        // 4 + 256 bytes: the same features as "Host" would have, were only the low byte of the
        // length used.
        assert_eq!(FieldName::from_bytes(&[b'h'; 260]), FieldName::Other);
    }
}
