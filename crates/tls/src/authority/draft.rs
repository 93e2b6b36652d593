//! What a certificate is to say.

use std::net::IpAddr;

use rustls::pki_types::ServerName;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;

use super::issuer::Issuer;
use super::wish::{LeafFault, LeafWish};
use super::write;
use crate::identity::address;

/// Certificates that are not made after another one live this long, and one begins every
/// [`PERIOD_DAYS`]: all that are made in a period are the same one.
const LIFE_DAYS: i64 = 90;
pub(super) const PERIOD_DAYS: i64 = 30;

const DAY_S: i64 = 24 * 60 * 60;

/// The times that can be written: 1970 to 9999.
const TIME_S: std::ops::RangeInclusive<i64> = 0..=253_402_300_799;

/// Most bytes of a common name (RFC 5280, ub-common-name).
const COMMON_NAME_BYTES_MAX: usize = 64;

/// The contents of a certificate.
#[derive(Debug)]
pub(super) struct Draft {
    /// The whole name of the subject (DER).
    pub(super) subject: Vec<u8>,
    /// The names that it is for.
    pub(super) names: Vec<LeafName>,
    /// Its time, in seconds since 1970.
    pub(super) begins_s: i64,
    pub(super) ends_s: i64,
    /// The purposes of the server's certificate: the content of its extension. `None`: it is for
    /// servers.
    pub(super) purposes: Option<Vec<u8>>,
}

/// A name that a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeafName {
    /// A host, or `*.` and a domain.
    Host(String),
    Address(IpAddr),
}

impl Draft {
    pub(super) fn of(
        wish: &LeafWish<'_>,
        authority: &Issuer,
        now_s: i64,
    ) -> Result<Self, LeafFault> {
        let mut draft = match wish.mimic {
            Some(der) => Self::after(der, authority)?,
            None => Self::for_names(wish.names, authority, now_s)?,
        };
        if let Some((begins_s, ends_s)) = wish.within_s {
            draft.begins_s = draft.begins_s.max(begins_s);
            draft.ends_s = draft.ends_s.min(ends_s);
        }
        if let Some(common) = wish.changes.common_name {
            let (name, common) = (LeafName::of(common)?, bare(common));
            draft.subject = write::subject_with(wish.mimic, common_name(common));
            draft.names = vec![name];
        }
        if wish.changes.begins_with_authority {
            draft.begins_s = authority.begins_s;
        }
        if wish.changes.ends_with_authority {
            draft.ends_s = authority.ends_s;
        }
        for time in [&mut draft.begins_s, &mut draft.ends_s] {
            *time = (*time).clamp(*TIME_S.start(), *TIME_S.end());
        }
        Ok(draft)
    }

    /// The same as in the certificate of a server, whatever is wrong with it.
    fn after(der: &[u8], authority: &Issuer) -> Result<Self, LeafFault> {
        let (_, real) =
            x509_parser::parse_x509_certificate(der).map_err(|_| LeafFault::Unreadable)?;
        let purposes = real.extensions().iter().find_map(|one| match one.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(_) => Some(one.value.to_vec()),
            _ => None,
        });
        Ok(Self {
            subject: real.subject().as_raw().to_vec(),
            names: names_of(&real),
            begins_s: real.validity().not_before.timestamp(),
            ends_s: real.validity().not_after.timestamp().min(authority.ends_s),
            purposes,
        })
    }

    fn for_names(names: &[&str], authority: &Issuer, now_s: i64) -> Result<Self, LeafFault> {
        let first = names.first().ok_or_else(|| LeafFault::NoName(String::new()))?;
        let names: Result<Vec<LeafName>, LeafFault> =
            names.iter().map(|name| LeafName::of_host(name)).collect();
        let start_s = period(now_s) * PERIOD_DAYS * DAY_S;
        Ok(Self {
            subject: write::subject_with(None, common_name(bare(first))),
            names: names?,
            // Clocks of clients may be slow.
            begins_s: (start_s - DAY_S).max(authority.begins_s),
            ends_s: (start_s + LIFE_DAYS * DAY_S).min(authority.ends_s),
            purposes: None,
        })
    }
}

impl LeafName {
    /// Of the host that a client asks for: servers are verified by no wildcard.
    fn of_host(name: &str) -> Result<Self, LeafFault> {
        match name.contains('*') {
            true => Err(LeafFault::NoName(name.chars().take(COMMON_NAME_BYTES_MAX).collect())),
            false => Self::of(name),
        }
    }

    fn of(name: &str) -> Result<Self, LeafFault> {
        let bad = || LeafFault::NoName(name.chars().take(COMMON_NAME_BYTES_MAX).collect());
        let name = bare(name);
        if let Ok(ip) = name.parse() {
            return Ok(Self::Address(ip));
        }
        let host = name.strip_prefix("*.").unwrap_or(name);
        match ServerName::try_from(host) {
            Ok(ServerName::DnsName(_)) => Ok(Self::Host(name.to_ascii_lowercase())),
            _ => Err(bad()),
        }
    }
}

/// A host of a URL as certificates have it: an address without brackets, a name without the dot at
/// its end.
fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or_else(|| host.strip_suffix('.').unwrap_or(host))
}

/// The period that a moment lies in.
pub(super) fn period(now_s: i64) -> i64 {
    now_s.div_euclid(PERIOD_DAYS * DAY_S)
}

/// A name that is too long for a common name is left out: clients go by the others.
fn common_name(name: &str) -> Option<&str> {
    Some(name).filter(|name| name.len() <= COMMON_NAME_BYTES_MAX)
}

/// The names that a server's certificate is for, as it has them.
fn names_of(real: &X509Certificate<'_>) -> Vec<LeafName> {
    // Clients of today refuse a server without this extension: they would take one whose common
    // name had been put there.
    let extension = real.subject_alternative_name().ok().flatten();
    let Some(extension) = extension else { return Vec::new() };
    let names = extension.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) if name.is_ascii() => {
                Some(LeafName::Host((*name).to_owned()))
            }
            GeneralName::IPAddress(bytes) => address(bytes).map(LeafName::Address),
            _ => None,
        })
        .collect()
}

/// The parts of a server's name that are not its common name: number and value of each, in order.
pub(super) fn without_common_name<'a>(
    real: &'a X509Certificate<'a>,
) -> impl Iterator<Item = (&'a [u8], u32, &'a [u8])> {
    let attributes = real.subject().iter_attributes();
    let others = attributes.filter(|one| *one.attr_type() != OID_X509_COMMON_NAME);
    others.map(|one| {
        let value = one.attr_value();
        (one.attr_type().as_bytes(), value.tag().0, value.data)
    })
}
