//! The messages of a handshake that has not been encrypted yet, read without a session.

use std::fmt;

use rustls::pki_types::CertificateDer;

/// Bytes of a record's head: kind, version, length.
const HEAD_BYTES: usize = 5;

/// Most bytes of a record's content (RFC 8446 5.1).
const CONTENT_BYTES_MAX: usize = 1 << 14;

/// Bytes in front of a handshake message: kind, length.
pub(crate) const MESSAGE_HEAD_BYTES: usize = 4;

/// Servers take a first record of versions below 16, whatever they are; other protocols that begin
/// with the kind of a record have more there.
const MAJOR_MOST: u8 = 0x0f;

/// Kinds of records.
pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;

/// Why bytes are no first message of TLS.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NotTls {
    /// They are of another protocol.
    OtherProtocol,
    /// They are the first message of SSL 2, in which old clients also ask for newer versions.
    Ssl2,
    /// They are TLS, and break its rules in this way.
    Broken(&'static str),
    /// They are TLS, and the message does not end within the bound.
    TooLong,
}

impl NotTls {
    /// Whether they are TLS nevertheless. `on_unsupported_protocol` is about the others only:
    /// servers exist that take broken messages, and a client must not get around the rules by
    /// sending one.
    pub fn is_broken_tls(self) -> bool {
        !matches!(self, Self::OtherProtocol)
    }
}

impl fmt::Display for NotTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProtocol => f.write_str("the bytes are no TLS"),
            Self::Ssl2 => f.write_str("the first message is one of SSL 2"),
            Self::Broken(what) => write!(f, "the first message breaks TLS: {what}"),
            Self::TooLong => f.write_str("the first message of TLS is too long"),
        }
    }
}

impl std::error::Error for NotTls {}

/// One record.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: u8,
    pub(crate) version: u16,
    /// What is there of it.
    pub(crate) content: &'a [u8],
    pub(crate) is_whole: bool,
}

/// Reads the record at the front, and returns what follows it; `None`: its head is not there yet.
/// What is there of a head is checked.
pub(crate) fn record(bytes: &[u8]) -> Result<Option<(Record<'_>, &[u8])>, NotTls> {
    let kinds = CHANGE_CIPHER_SPEC..=HANDSHAKE;
    if bytes.first().is_some_and(|kind| !kinds.contains(kind))
        || bytes.get(1).is_some_and(|major| *major > MAJOR_MOST)
    {
        return Err(NotTls::OtherProtocol);
    }
    // Servers exist that read no further than the kind.
    if bytes.get(1).is_some_and(|major| *major != 3) {
        return Err(NotTls::Broken("the version of a record"));
    }
    let Some((&[kind, major, minor, high, low], rest)) = bytes.split_first_chunk::<HEAD_BYTES>()
    else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    // Empty ones would keep the reader busy with nothing, and are forbidden (RFC 8446 5.1).
    if length == 0 {
        return Err(NotTls::Broken("a record is empty"));
    }
    if length > CONTENT_BYTES_MAX {
        return Err(NotTls::Broken("a record is too long"));
    }
    let (content, rest) = rest.split_at(length.min(rest.len()));
    let version = u16::from_be_bytes([major, minor]);
    let is_whole = content.len() == length;
    Ok(Some((Record { kind, version, content, is_whole }, rest)))
}

/// A part of a message, read from its front. What is missing breaks the message.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], NotTls> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, NotTls> {
        let (first, rest) = self.0.split_first().ok_or(CUT)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, NotTls> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn u24(&mut self) -> Result<usize, NotTls> {
        Ok(usize::from(self.u8()?) << 16 | usize::from(self.u16()?))
    }

    /// The bytes behind a length of one byte.
    pub(crate) fn vector8(&mut self) -> Result<Self, NotTls> {
        let length = self.u8()?;
        self.bytes(usize::from(length)).map(Self)
    }

    /// The bytes behind a length of two bytes.
    pub(crate) fn vector16(&mut self) -> Result<Self, NotTls> {
        let length = self.u16()?;
        self.bytes(usize::from(length)).map(Self)
    }

    /// The bytes behind a length of three bytes.
    pub(crate) fn vector24(&mut self) -> Result<Self, NotTls> {
        let length = self.u24()?;
        self.bytes(length).map(Self)
    }

    /// A list of certificates, as TLS 1.2 has it. Each is as long as it says, whatever it holds.
    pub(crate) fn certificates(&mut self) -> Result<Vec<CertificateDer<'static>>, NotTls> {
        let mut list = self.vector24()?;
        let mut all = Vec::new();
        while !list.is_empty() {
            let one = list.vector24()?.0;
            if one.is_empty() {
                return Err(NotTls::Broken("a certificate is empty"));
            }
            if all.len() == CERTIFICATES_MAX {
                return Err(NotTls::TooLong);
            }
            all.push(CertificateDer::from(one.to_vec()));
        }
        Ok(all)
    }
}

/// Most certificates of a chain that are kept; a chain with more is refused.
const CERTIFICATES_MAX: usize = 32;

const CUT: NotTls = NotTls::Broken("a part of it is shorter than it says");
