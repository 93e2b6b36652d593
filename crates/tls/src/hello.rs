//! The first message of a client (ClientHello), read without a session, so that rules can be asked
//! before anybody answers it.

use humboldt_base::bump::ClientHello;
use rustls::pki_types::ServerName;

use crate::records::{
    CHANGE_CIPHER_SPEC, HANDSHAKE, MESSAGE_HEAD_BYTES, NotTls, Reader, Record, record,
};

/// Most bytes of a first message, with the heads of its records.
pub const HELLO_BYTES_MAX: usize = 64 * 1024;

/// The kind of the message.
const CLIENT_HELLO: u8 = 1;

/// The kind of records with data.
const APPLICATION_DATA: u8 = 23;

/// Extensions (RFC 6066 3, RFC 7301, RFC 8446 4.2.1, RFC 9849).
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Reads a client's first message, and says where it ends among the bytes; `None`: more bytes are
/// needed. Whatever can be told from the bytes that are there is told at once: nobody is waited for
/// whose bytes cannot become a message.
///
/// # Errors
/// The bytes are no such message, or one that is too long.
pub fn read_client_hello(bytes: &[u8]) -> Result<Option<(ClientHello, usize)>, NotTls> {
    if let Some(whole) = begins_ssl2(bytes) {
        return if whole { Err(NotTls::Ssl2) } else { Ok(None) };
    }
    let within = bytes.get(..HELLO_BYTES_MAX).unwrap_or(bytes);
    let Some(found) = Found::in_records(within)? else {
        return match bytes.len() < HELLO_BYTES_MAX {
            true => Ok(None),
            false => Err(NotTls::TooLong),
        };
    };
    let mut hello = match found.fragments {
        1 => parse(found.first)?,
        _ => parse(&found.joined(within))?,
    };
    hello.record_version = found.version;
    Ok(Some((hello, found.end)))
}

/// Most bytes of a client between its first message and the end of its second one: records of
/// early data may lie between.
pub const SECOND_HELLO_BYTES_MAX: usize = 128 * 1024;

/// Reads the message that a client sends because its server has asked for another first one, from
/// the bytes behind the first; `None`: more bytes are needed. The change of the cipher and early
/// data may come before it (RFC 8446 4.2.10 and D.4).
///
/// # Errors
/// The bytes are no such message, or one that is too long.
pub fn read_second_hello(bytes: &[u8]) -> Result<Option<ClientHello>, NotTls> {
    let mut rest = bytes.get(..SECOND_HELLO_BYTES_MAX).unwrap_or(bytes);
    while let Some(CHANGE_CIPHER_SPEC | APPLICATION_DATA) = rest.first().copied() {
        let Some((&[_, _, _, high, low], content)) = rest.split_first_chunk() else { break };
        let length = usize::from(u16::from_be_bytes([high, low]));
        match content.get(length..) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    let hello = match rest.first().copied() {
        None | Some(CHANGE_CIPHER_SPEC | APPLICATION_DATA) => None,
        Some(_) => read_client_hello(rest)?,
    };
    match hello {
        None if bytes.len() >= SECOND_HELLO_BYTES_MAX => Err(NotTls::TooLong),
        hello => Ok(hello.map(|(hello, _)| hello)),
    }
}

/// Where a whole message is.
struct Found<'a> {
    /// The version in the head of the first record.
    version: u16,
    /// The content of the first record.
    first: &'a [u8],
    /// The number of records.
    fragments: usize,
    /// Bytes of the message, its head included.
    length: usize,
    /// Where the last record ends.
    end: usize,
}

impl<'a> Found<'a> {
    /// Looks through the heads of records; nothing is copied before the message is there.
    fn in_records(bytes: &'a [u8]) -> Result<Option<Self>, NotTls> {
        let mut found = Self { version: 0, first: &[], fragments: 0, length: 0, end: 0 };
        let mut head = Head::default();
        let mut rest = bytes;
        let mut has = 0;
        while let Some((record, behind)) = next_of_handshake(rest, found.fragments == 0)? {
            if found.fragments == 0 {
                (found.version, found.first) = (record.version, record.content);
            }
            found.fragments += 1;
            head.take(record.content);
            if let Some(length) = head.length()? {
                found.length = length;
            }
            has += record.content.len();
            if !record.is_whole {
                return Ok(None);
            }
            rest = behind;
            if found.length > 0 && has >= found.length {
                // Nothing may follow before the server has answered.
                if has > found.length {
                    return Err(NotTls::Broken("something follows it"));
                }
                found.end = bytes.len() - rest.len();
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The message out of its records.
    fn joined(&self, bytes: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.length);
        let mut rest = bytes.get(..self.end).unwrap_or_default();
        while let Ok(Some((record, behind))) = record(rest) {
            message.extend_from_slice(record.content);
            rest = behind;
        }
        message
    }
}

/// The next record of the message.
fn next_of_handshake(bytes: &[u8], is_first: bool) -> Result<Option<(Record<'_>, &[u8])>, NotTls> {
    match record(bytes) {
        // Servers pass over some, such as a warning in front of the message, and read on.
        Ok(Some((record, _))) if record.kind != HANDSHAKE => {
            Err(NotTls::Broken("another record is where it should be"))
        }
        next => next,
    }
    .map_err(|error| match error {
        // What has begun as TLS is TLS.
        NotTls::OtherProtocol if !is_first => NotTls::Broken("something else is in its middle"),
        error => error,
    })
}

/// The head of the message, which may lie in several records.
#[derive(Default)]
struct Head {
    bytes: [u8; MESSAGE_HEAD_BYTES],
    has: usize,
}

impl Head {
    fn take(&mut self, content: &[u8]) {
        let free = self.bytes.get_mut(self.has..).unwrap_or_default();
        for (to, from) in free.iter_mut().zip(content) {
            *to = *from;
            self.has += 1;
        }
    }

    /// The length of the message with its head, once it is known.
    fn length(&self) -> Result<Option<usize>, NotTls> {
        let [kind, high, middle, low] = self.bytes;
        if self.has > 0 && kind != CLIENT_HELLO {
            return Err(NotTls::Broken("it is no ClientHello"));
        }
        if self.has < MESSAGE_HEAD_BYTES {
            return Ok(None);
        }
        let length = u32::from_be_bytes([0, high, middle, low]) as usize + MESSAGE_HEAD_BYTES;
        match length > HELLO_BYTES_MAX {
            true => Err(NotTls::TooLong),
            false => Ok(Some(length)),
        }
    }
}

/// Whether it is a message of SSL 2: a length with its highest bit set, the kind, a version.
/// `Some(false)`: it is one so far. It must not pass for another protocol because it comes byte by
/// byte: servers exist that answer it with TLS.
fn begins_ssl2(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0x80..=0xff, _, CLIENT_HELLO, 0 | 2 | 3, ..] => Some(true),
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, CLIENT_HELLO] => Some(false),
        _ => None,
    }
}

fn parse(message: &[u8]) -> Result<ClientHello, NotTls> {
    let mut reader = Reader(message.get(MESSAGE_HEAD_BYTES..).unwrap_or_default());
    let mut hello = ClientHello { newest_version: reader.u16()?, ..ClientHello::default() };
    reader.bytes(32)?;
    if reader.vector8()?.0.len() > 32 {
        return Err(NotTls::Broken("a session's number is too long"));
    }
    let ciphers = reader.vector16()?.0;
    if ciphers.is_empty() || ciphers.len() % 2 != 0 {
        return Err(NotTls::Broken("its list of ciphers"));
    }
    if reader.vector8()?.is_empty() {
        return Err(NotTls::Broken("its list of compressions"));
    }
    if reader.is_empty() {
        return Ok(hello);
    }
    let mut extensions = reader.vector16()?;
    if !reader.is_empty() {
        return Err(NotTls::Broken("something follows its extensions"));
    }
    let mut kinds = Vec::new();
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        kinds.push(kind);
        read_extension(&mut hello, kind, content)?;
    }
    // Of two names, servers might take the other one.
    kinds.sort_unstable();
    if kinds.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
        return Err(NotTls::Broken("an extension is there twice"));
    }
    Ok(hello)
}

fn read_extension(
    hello: &mut ClientHello,
    kind: u16,
    mut content: Reader<'_>,
) -> Result<(), NotTls> {
    match kind {
        SERVER_NAME => hello.sni = read_server_name(&mut content)?,
        ALPN => hello.alpn = read_protocols(&mut content)?,
        SUPPORTED_VERSIONS => {
            // It counts in place of the version at the front (RFC 8446 4.2.1).
            let mut versions = content.vector8()?;
            let mut newest = None;
            while !versions.is_empty() {
                let version = versions.u16()?;
                newest = newest.max(Some(version).filter(|version| !is_grease(*version)));
            }
            hello.newest_version = newest.ok_or(NotTls::Broken("its list of versions"))?;
        }
        ENCRYPTED_CLIENT_HELLO => {
            hello.has_ech = true;
            return Ok(());
        }
        _ => return Ok(()),
    }
    match content.is_empty() {
        true => Ok(()),
        false => Err(NotTls::Broken("an extension is longer than its content")),
    }
}

/// The only name of a list (RFC 6066 3). `None`: it is an address, which is not allowed there, and
/// which servers pass over.
fn read_server_name(content: &mut Reader<'_>) -> Result<Option<Box<str>>, NotTls> {
    const HOST_NAME: u8 = 0;
    const BAD: NotTls = NotTls::Broken("the name of the server (SNI) is no host name");
    let mut list = content.vector16()?;
    if list.u8()? != HOST_NAME {
        return Err(BAD);
    }
    let name = list.vector16()?.0;
    // Other kinds of names have never been defined, nor can there be two of one kind.
    if !list.is_empty() {
        return Err(NotTls::Broken("there are several names of the server (SNI)"));
    }
    match ServerName::try_from(name) {
        Ok(ServerName::DnsName(name)) => {
            let name = name.as_ref();
            let name = name.strip_suffix('.').unwrap_or(name);
            Ok(Some(name.to_ascii_lowercase().into()))
        }
        Ok(ServerName::IpAddress(_)) => Ok(None),
        // What a server makes of it cannot be known.
        _ => Err(BAD),
    }
}

fn read_protocols(content: &mut Reader<'_>) -> Result<Vec<Box<[u8]>>, NotTls> {
    const BAD: NotTls = NotTls::Broken("its list of protocols (ALPN)");
    let mut list = content.vector16()?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let name = list.vector8()?.0;
        if name.is_empty() || protocols.len() == PROTOCOLS_MAX {
            return Err(BAD);
        }
        protocols.push(name.into());
    }
    if protocols.is_empty() { Err(BAD) } else { Ok(protocols) }
}

/// Most protocols of a list; a message with more is refused. Clients send one to five.
const PROTOCOLS_MAX: usize = 256;

/// Values that clients sprinkle in so that servers do not choke on new ones (RFC 8701).
fn is_grease(value: u16) -> bool {
    let [high, low] = value.to_be_bytes();
    high == low && high & 0x0f == 0x0a
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
