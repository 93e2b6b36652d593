//! Fields about one connection only (RFC 9110 7.6.1) and persistence (RFC 9112 9.3).

use crate::fields::Fields;
use crate::list::split_list;
use crate::method::Version;
use crate::name::{FieldName, set_of};

/// Fields never forwarded. The codec writes new framing; the caller adds the fields of the next
/// connection.
const HOP_BY_HOP: u128 = set_of(&[
    FieldName::Connection,
    FieldName::Http2Settings,
    FieldName::KeepAlive,
    FieldName::ProxyAuthenticate,
    FieldName::ProxyAuthenticationInfo,
    FieldName::ProxyAuthorization,
    FieldName::ProxyConnection,
    FieldName::Te,
    FieldName::Trailer,
    FieldName::TransferEncoding,
    FieldName::Upgrade,
]);

/// Fields that `Connection` cannot remove. Routing, framing, caching, conditions, credentials and
/// provenance must survive; otherwise a client could remove the basis of later decisions.
const END_TO_END: u128 = set_of(&[
    FieldName::Age,
    FieldName::Authorization,
    FieldName::CacheControl,
    FieldName::CdnCacheControl,
    FieldName::CdnLoop,
    FieldName::ContentEncoding,
    FieldName::ContentLength,
    FieldName::ContentRange,
    FieldName::ContentType,
    FieldName::Cookie,
    FieldName::Date,
    FieldName::Etag,
    FieldName::Expect,
    FieldName::Expires,
    FieldName::Forwarded,
    FieldName::Host,
    FieldName::IfMatch,
    FieldName::IfModifiedSince,
    FieldName::IfNoneMatch,
    FieldName::IfRange,
    FieldName::IfUnmodifiedSince,
    FieldName::LastModified,
    FieldName::Location,
    FieldName::MaxForwards,
    FieldName::Pragma,
    FieldName::Range,
    FieldName::SetCookie,
    FieldName::SurrogateControl,
    FieldName::Vary,
    FieldName::Via,
    FieldName::WwwAuthenticate,
    FieldName::XForwardedFor,
    FieldName::XForwardedHost,
    FieldName::XForwardedProto,
]);

/// Which fields of one message must not be forwarded.
#[derive(Copy, Clone, Debug)]
pub struct HopByHop<'a> {
    fields: &'a Fields,
    /// Known names to drop.
    dropped: u128,
    /// Whether `Connection` names a field without an entry in the table.
    names_others: bool,
}

impl<'a> HopByHop<'a> {
    /// The hop-by-hop fields of the message with these fields: the standard ones and those
    /// `Connection` names, except names that matter end to end.
    #[must_use]
    pub fn of(fields: &'a Fields) -> HopByHop<'a> {
        let mut hops = HopByHop { fields, dropped: HOP_BY_HOP, names_others: false };
        // The usual values name no other field.
        let value = fields.get(FieldName::Connection);
        let is_usual = matches!(value, None | Some(b"keep-alive" | b"close"));
        if is_usual && !fields.is_repeated(FieldName::Connection) {
            return hops;
        }
        for option in fields.list(FieldName::Connection) {
            match FieldName::from_bytes(option) {
                FieldName::Other if is_connection_option(option) => {}
                FieldName::Other => hops.names_others = true,
                known => hops.dropped |= known.bit() & !END_TO_END,
            }
        }
        hops
    }

    /// Whether the field with this known name and text must not be forwarded.
    #[inline]
    #[must_use]
    pub fn is_hop(&self, id: FieldName, name: &[u8]) -> bool {
        match id {
            FieldName::Other => {
                self.names_others
                    && self
                        .fields
                        .list(FieldName::Connection)
                        .any(|option| option.eq_ignore_ascii_case(name))
            }
            known => self.dropped & known.bit() != 0,
        }
    }
}

/// Removes from a request the fields that its `Connection` names, except those that matter end to
/// end and those about this connection itself. Afterwards the request is as the server will see it:
/// a field that the server never gets must not choose the variant under which its answer is stored.
pub fn remove_named(fields: &mut Fields) {
    if !fields.has(FieldName::Connection) {
        return;
    }
    let hops = HopByHop::of(fields);
    if hops.dropped == HOP_BY_HOP && !hops.names_others {
        return;
    }
    let is_named = |id: FieldName, name: &[u8]| HOP_BY_HOP & id.bit() == 0 && hops.is_hop(id, name);
    let named: Vec<Vec<u8>> = fields
        .iter()
        .filter(|(id, name, _)| is_named(*id, name))
        .map(|(_, name, _)| name.to_vec())
        .collect();
    for name in named {
        fields.remove_by_name(&name);
    }
}

/// Connection options that are not field names.
fn is_connection_option(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"close")
}

/// Whether the connection may carry another message after this one, according to its sender:
/// HTTP/1.1 persists unless `close`, HTTP/1.0 only with `keep-alive`. `Proxy-Connection`, which old
/// clients send to proxies, counts like `Connection`; `close` wins.
#[must_use]
pub fn keep_alive(version: Version, fields: &Fields) -> bool {
    let mut keeps = version == Version::Http11;
    if !fields.has(FieldName::Connection) && !fields.has(FieldName::ProxyConnection) {
        return keeps;
    }
    for name in [FieldName::Connection, FieldName::ProxyConnection] {
        for value in fields.get_all(name) {
            // The usual case: no list to take apart.
            if value == b"keep-alive" {
                keeps = true;
                continue;
            }
            for option in split_list(value) {
                if option.eq_ignore_ascii_case(b"close") {
                    return false;
                }
                keeps |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }
    keeps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push_named(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    fn is_hop(fields: &Fields, name: &str) -> bool {
        HopByHop::of(fields).is_hop(FieldName::from_bytes(name.as_bytes()), name.as_bytes())
    }

    #[test]
    fn standard_and_named_fields_are_dropped() {
        let fields =
            fields(&[("Connection", "close, X-One"), ("Connection", "warning,keep-alive")]);
        for name in
            ["Connection", "Keep-Alive", "TE", "Upgrade", "HTTP2-Settings", "x-one", "Warning"]
        {
            assert!(is_hop(&fields, name), "{name}");
        }
        for name in ["X-Two", "Accept", "Host"] {
            assert!(!is_hop(&fields, name), "{name}");
        }
    }

    #[test]
    fn what_connection_names_is_removed_for_whoever_looks_later() {
        let mut fields = fields(&[
            ("connection", "close, upgrade, X-One, accept-language"),
            ("Connection", "Cookie, x-one, absent"),
            ("Upgrade", "a"),
            ("x-ONE", "1"),
            ("Accept-Language", "de"),
            ("X-One", "2"),
            ("Cookie", "a=1"),
            ("X-Two", "1"),
        ]);
        remove_named(&mut fields);
        let names: Vec<&[u8]> = fields.iter().map(|(_, name, _)| name).collect();
        let kept: [&[u8]; 5] = [b"connection", b"Connection", b"Upgrade", b"Cookie", b"X-Two"];
        assert_eq!(names, kept);
        assert!(!fields.has(FieldName::AcceptLanguage));
    }

    #[test]
    fn what_later_hops_need_cannot_be_named_away() {
        let named = "close, Content-Length, Host, Cache-Control, Age, X-Forwarded-For, Via, Cookie, Vary, Range";
        let fields = fields(&[("Connection", named)]);
        for name in named.split(", ").skip(1) {
            assert!(!is_hop(&fields, name), "{name}");
        }
    }

    #[test]
    fn persistence() {
        let none = fields(&[]);
        let close = fields(&[("Connection", "Keep-Alive, Close")]);
        let keep = fields(&[("Connection", "Keep-Alive")]);
        let old = fields(&[("Proxy-Connection", "keep-alive")]);
        assert!(keep_alive(Version::Http11, &none) && !keep_alive(Version::Http10, &none));
        assert!(!keep_alive(Version::Http11, &close) && !keep_alive(Version::Http10, &close));
        assert!(keep_alive(Version::Http10, &keep) && keep_alive(Version::Http10, &old));
        assert!(!keep_alive(Version::Http11, &fields(&[("Proxy-Connection", "close")])));
    }
}
