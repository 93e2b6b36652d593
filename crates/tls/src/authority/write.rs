//! A certificate in bytes.
//!
//! rcgen, which makes the authority, cannot be used here: names of authorities with several
//! attributes of a kind (`DC=corp, DC=example`) lose some in it, and then no client finds the
//! authority; and a server's name could not be kept to the last bit. Only the framing is written
//! here; keys and signatures are the library's.

use humboldt_base::civil::civil_from_days;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer};
use sha2::{Digest, Sha256};
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_OID, TAG_UTCTIME};
use yasna::{DERWriter, DERWriterSeq, Tag};

use super::draft::{Draft, LeafName, without_common_name};
use super::issuer::{Issuer, LeafKey};
use super::wish::LeafFault;

/// Bytes of the number of a certificate, the most that are allowed (RFC 5280 4.1.2.2).
const SERIAL_BYTES: usize = 20;

/// The number of a certificate, which no other one has.
type Serial = [u8; SERIAL_BYTES];

/// The digest of what a certificate says, whichever number it has.
pub(super) type Contents = [u8; 32];

/// Numbers of extensions, purposes and attributes.
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const PURPOSES: &[u8] = &[0x55, 0x1d, 0x25];
const FOR_SERVERS: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Makes a certificate. Without an issuer it is signed by itself.
pub(super) fn certificate(
    draft: &Draft,
    leaf: &LeafKey,
    issuer: Option<&Issuer>,
) -> Result<(CertificateDer<'static>, Contents), LeafFault> {
    let signer = issuer.map_or_else(|| leaf.signer(), Issuer::signer);
    let body = |serial: &Serial| to_be_signed(draft, leaf, issuer, signer.algorithm, serial);
    // Clients complain about two certificates of one authority with one number, and two with the
    // same contents have other signatures. So the number is drawn.
    let mut serial = [0; SERIAL_BYTES];
    let contents = Sha256::digest(body(&serial)).into();
    let drawn = aws_lc_rs::default_provider().secure_random.fill(&mut serial);
    drawn.map_err(|_| LeafFault::Unsigned("there are no random numbers".to_owned()))?;
    // It is positive, and always as long.
    if let Some(first) = serial.first_mut() {
        *first = *first & 0x3f | 0x40;
    }
    let body = body(&serial);
    let signature = signer.sign(&body).map_err(LeafFault::Unsigned)?;
    let der = yasna::construct_der(|writer| {
        writer.write_sequence(|parts| {
            parts.next().write_der(&body);
            algorithm(parts.next(), signer.algorithm);
            parts.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    });
    Ok((CertificateDer::from(der), contents))
}

fn to_be_signed(
    draft: &Draft,
    leaf: &LeafKey,
    issuer: Option<&Issuer>,
    signed_with: AlgorithmIdentifier,
    serial: &Serial,
) -> Vec<u8> {
    /// Version 3 of X.509.
    const V3: u8 = 2;
    yasna::construct_der(|writer| {
        writer.write_sequence(|parts| {
            parts.next().write_tagged(Tag::context(0), |writer| writer.write_u8(V3));
            parts.next().write_bigint_bytes(serial, true);
            algorithm(parts.next(), signed_with);
            parts.next().write_der(issuer.map_or(&draft.subject, |issuer| &issuer.name));
            parts.next().write_sequence(|times| {
                time(times.next(), draft.begins_s);
                time(times.next(), draft.ends_s);
            });
            parts.next().write_der(&draft.subject);
            parts.next().write_der(&leaf.public);
            parts.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|parts| extensions(parts, draft, leaf, issuer));
            });
        });
    })
}

fn extensions(
    parts: &mut DERWriterSeq<'_>,
    draft: &Draft,
    leaf: &LeafKey,
    issuer: Option<&Issuer>,
) {
    /// The first bit: signatures of handshakes.
    const DIGITAL_SIGNATURE: &[u8] = &[0x80];
    extension(parts, BASIC_CONSTRAINTS, true, |writer| writer.write_sequence(|_| {}));
    // The key can sign and nothing else, whatever that of the server can.
    extension(parts, KEY_USAGE, true, |writer| writer.write_bitvec_bytes(DIGITAL_SIGNATURE, 1));
    extension(parts, PURPOSES, false, |writer| match &draft.purposes {
        Some(purposes) => writer.write_der(purposes),
        None => writer.write_sequence(|purposes| oid(purposes.next(), FOR_SERVERS)),
    });
    if !draft.names.is_empty() {
        /// An empty sequence.
        const NOBODY: &[u8] = &[0x30, 0];
        let has_no_subject = draft.subject == NOBODY;
        extension(parts, ALTERNATIVE_NAMES, has_no_subject, |writer| {
            writer.write_sequence(|names| {
                for name in &draft.names {
                    alternative_name(names.next(), name);
                }
            });
        });
    }
    extension(parts, SUBJECT_KEY_ID, false, |writer| writer.write_bytes(&leaf.key_id));
    extension(parts, AUTHORITY_KEY_ID, false, |writer| {
        let key_id = issuer.map_or(&leaf.key_id, |issuer| &issuer.key_id);
        writer.write_sequence(|parts| {
            let tag = Tag::context(0);
            parts.next().write_tagged_implicit(tag, |writer| writer.write_bytes(key_id));
        });
    });
}

fn extension(
    parts: &mut DERWriterSeq<'_>,
    number: &[u8],
    is_critical: bool,
    content: impl FnOnce(DERWriter<'_>),
) {
    parts.next().write_sequence(|parts| {
        oid(parts.next(), number);
        if is_critical {
            parts.next().write_bool(true);
        }
        parts.next().write_bytes(&yasna::construct_der(content));
    });
}

fn alternative_name(writer: DERWriter<'_>, name: &LeafName) {
    match name {
        LeafName::Host(host) => {
            writer.write_tagged_implicit(Tag::context(2), |writer| writer.write_ia5_string(host));
        }
        LeafName::Address(ip) => {
            let bytes = match ip {
                std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
                std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            writer.write_tagged_implicit(Tag::context(7), |writer| writer.write_bytes(&bytes));
        }
    }
}

/// The name of a subject: what a server's certificate says of it without its common name, and this
/// common name.
pub(super) fn subject_with(mimic: Option<&[u8]>, common_name: Option<&str>) -> Vec<u8> {
    let real = mimic.and_then(|der| x509_parser::parse_x509_certificate(der).ok());
    yasna::construct_der(|writer| {
        writer.write_sequence(|parts| {
            for (number, kind, value) in real.iter().flat_map(|(_, real)| without_common_name(real))
            {
                attribute(parts.next(), number, |writer| {
                    let tag =
                        Tag { tag_class: yasna::TagClass::Universal, tag_number: kind.into() };
                    writer.write_tagged_implicit(tag, |writer| writer.write_bytes(value));
                });
            }
            if let Some(name) = common_name {
                attribute(parts.next(), COMMON_NAME, |writer| writer.write_utf8_string(name));
            }
        });
    })
}

/// A name that is only a common name.
pub(super) fn name(common_name: &str) -> Vec<u8> {
    subject_with(None, Some(common_name))
}

fn attribute(writer: DERWriter<'_>, number: &[u8], value: impl FnOnce(DERWriter<'_>)) {
    writer.write_set(|parts| {
        parts.next().write_sequence(|parts| {
            oid(parts.next(), number);
            value(parts.next());
        });
    });
}

/// A number of the registry of objects, by its bytes.
fn oid(writer: DERWriter<'_>, bytes: &[u8]) {
    writer.write_tagged_implicit(TAG_OID, |writer| writer.write_bytes(bytes));
}

fn algorithm(writer: DERWriter<'_>, algorithm: AlgorithmIdentifier) {
    writer.write_sequence(|parts| parts.next().write_der(algorithm.as_ref()));
}

/// A time: up to 2049 with two digits of the year (RFC 5280 4.1.2.5).
fn time(writer: DERWriter<'_>, time_s: i64) {
    let (days, rest) = (time_s.div_euclid(86_400), time_s.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let (tag, year) = match year < 2050 {
        true => (TAG_UTCTIME, format!("{:02}", year % 100)),
        false => (TAG_GENERALIZEDTIME, format!("{year:04}")),
    };
    let text = format!("{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    writer.write_tagged_implicit(tag, |writer| writer.write_bytes(text.as_bytes()));
}
