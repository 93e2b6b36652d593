//! Answers of OCSP (RFC 6960) that a port sends with its certificate, so that clients need not ask
//! its authority themselves.
//!
//! The signature is not verified: only clients rely on it, and they verify it. What is checked here
//! is what makes clients fail: an answer for another certificate, one that says anything but
//! `good`. One that is too old stops nothing: it is not sent, and the log says so.

use rustls::pki_types::CertificateDer;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use x509_parser::asn1_rs::{Any, Class, FromDer, Tag};
use x509_parser::time::ASN1Time;

use crate::error::SetupProblem;
use crate::files::{self, Files};

/// The statuses of an answer and of a certificate that are good.
const SUCCESSFUL: &[u8] = &[0];
const GOOD: u32 = 0;

/// The hashes by which an answer names the authority, as object identifiers.
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];

/// An answer that is good for a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Stapled {
    /// As it is sent.
    pub(crate) answer: Vec<u8>,
    /// When it is too old, in seconds of Unix time.
    pub(crate) until_s: u64,
}

impl Stapled {
    /// The answer in a file, in DER, for this certificate. It may be too old.
    pub(crate) fn new(
        files: &dyn Files,
        path: &str,
        own: &CertificateDer<'_>,
    ) -> Result<Self, SetupProblem> {
        let answer = files::read(files, path)?;
        let bad = |why| SetupProblem::BadOcsp { file: path.to_owned(), why };
        let until_s = good_until(&answer, own).map_err(bad)?;
        Ok(Self { answer, until_s })
    }
}

/// Until when an answer says that this certificate is good.
fn good_until(answer: &[u8], own: &CertificateDer<'_>) -> Result<u64, &'static str> {
    let unreadable = "it is no answer of OCSP in DER";
    let (_, certificate) = x509_parser::parse_x509_certificate(own).map_err(|_| unreadable)?;
    let singles = singles(answer).ok_or(unreadable)?;
    let Some(singles) = singles else { return Err("the authority has given no answer") };
    let mut until_s: Option<u64> = None;
    for single in children(singles) {
        let fields: Vec<Any<'_>> = children(single.data).collect();
        let [id, status, _this_update, rest @ ..] = &fields[..] else { return Err(unreadable) };
        let id: Vec<Any<'_>> = children(id.data).collect();
        let [algorithm, name_hash, _key_hash, serial] = &id[..] else { return Err(unreadable) };
        let algorithm = children(algorithm.data).next().ok_or(unreadable)?;
        let issuer = certificate.issuer().as_raw();
        let is_of_issuer = match algorithm.data {
            SHA1 => Sha1::digest(issuer).as_slice() == name_hash.data,
            SHA256 => Sha256::digest(issuer).as_slice() == name_hash.data,
            _ => return Err("it names the authority by an unknown hash"),
        };
        if !is_of_issuer || serial.data != certificate.raw_serial() {
            continue;
        }
        if status.tag().0 != GOOD || status.class() != Class::ContextSpecific {
            return Err("it does not say that the certificate is good");
        }
        let next = rest.iter().find(|field| is_tagged(field, 0));
        let next = next.ok_or("it does not say until when it is valid")?;
        let (_, next) = ASN1Time::from_der(next.data).map_err(|_| unreadable)?;
        let next_s = u64::try_from(next.timestamp()).map_err(|_| unreadable)?;
        // One of several could say something else.
        until_s = Some(until_s.map_or(next_s, |until_s| until_s.min(next_s)));
    }
    until_s.ok_or("it is for another certificate")
}

/// The answers about single certificates. `None`: it cannot be read. `Some(None)`: there are none,
/// but a word of refusal.
fn singles(answer: &[u8]) -> Option<Option<&[u8]>> {
    let mut response = children(sequence(answer)?);
    if response.next()?.data != SUCCESSFUL {
        return Some(None);
    }
    let mut bytes = children(sequence(response.next()?.data)?);
    let (_kind, basic) = (bytes.next()?, bytes.next()?);
    let data = children(sequence(basic.data)?).next()?;
    // A version, who answers, when, and the answers.
    let mut fields = children(data.data).skip_while(|field| is_tagged(field, 0));
    let (_responder, _time) = (fields.next()?, fields.next()?);
    fields.next().map(|singles| Some(singles.data))
}

fn is_tagged(field: &Any<'_>, number: u32) -> bool {
    field.class() == Class::ContextSpecific && field.tag().0 == number
}

/// The contents of a sequence.
fn sequence(bytes: &[u8]) -> Option<&[u8]> {
    let (_, any) = Any::from_der(bytes).ok()?;
    (any.tag() == Tag::Sequence).then_some(any.data)
}

/// The parts of a sequence, up to the first that cannot be read.
fn children(mut bytes: &[u8]) -> impl Iterator<Item = Any<'_>> {
    std::iter::from_fn(move || {
        let (rest, any) = Any::from_der(bytes).ok()?;
        bytes = rest;
        Some(any)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_no_answer() {
        let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("made");
        for garbage in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x03\x0a\x01\x00", b"-----BEGIN"] {
            assert!(good_until(garbage, own.cert.der()).is_err(), "{garbage:?}");
        }
        // `tryLater`
        let later = good_until(b"\x30\x03\x0a\x01\x03", own.cert.der());
        assert_eq!(later, Err("the authority has given no answer"));
    }
}
