//! The facts of certificates.

use humboldt_base::certificate::{Certificate, Name};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Most bytes of a value that is kept, and most attributes of a name.
const VALUE_BYTES_MAX: usize = 1024;
const ATTRIBUTES_MAX: usize = 64;

/// The facts of a certificate in DER form; `None` if it, or a value of its names, cannot be read.
pub fn certificate_facts(der: &[u8]) -> Option<Certificate> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let (subject, issuer) = (name(certificate.subject())?, name(certificate.issuer())?);
    Some(Certificate { subject, issuer })
}

fn name(name: &X509Name<'_>) -> Option<Name> {
    let mut found = Name::default();
    for attribute in name.iter_attributes().take(ATTRIBUTES_MAX) {
        let value = text(attribute)?;
        // What could end a line of a log is not passed on.
        let clean = |c: char| if c.is_control() { '?' } else { c };
        let value: String = value.chars().map(clean).take(VALUE_BYTES_MAX).collect();
        let number = attribute.attr_type().to_id_string();
        let name = short_name(&number).to_owned();
        found.line.push_str(&format!("/{name}={value}"));
        found.attributes.push((name, number, value));
    }
    Some(found)
}

/// A value in any of the forms that it may have (RFC 5280 4.1.2.4).
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let bytes = attribute.as_slice();
    match attribute.attr_value().tag() {
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            text.ok().filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (units, rest) = bytes.as_chunks::<4>();
            let units = units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            units.collect::<Option<String>>().filter(|_| rest.is_empty())
        }
        // OpenSSL and others take it for Latin-1.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

/// The short names that OpenSSL has for attributes.
fn short_name(oid: &str) -> &str {
    match oid {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.42" => "GN",
        "1.2.840.113549.1.9.1" => "emailAddress",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        other => other,
    }
}

/// The host names that a certificate is for: those of its extension, or without one the common
/// name, which old clients go by.
pub(crate) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    let extension = certificate.subject_alternative_name().ok().flatten();
    let alternative = extension.iter().flat_map(|extension| &extension.value.general_names);
    let mut names: Vec<String> = alternative
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        let common = certificate.subject().iter_common_name();
        names.extend(common.filter_map(|name| Some(name.as_str().ok()?.to_ascii_lowercase())));
    }
    names
}
