//! The first answer of a server, as far as it is not encrypted, read without a session: which
//! version it has chosen, and up to TLS 1.2 its certificates.

use rustls::pki_types::CertificateDer;

use crate::records::{
    ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE, MESSAGE_HEAD_BYTES, NotTls, Reader, record,
};

/// Most bytes of an answer that are looked at, with the heads of its records. Longer chains are
/// refused by the library too.
pub const FLIGHT_BYTES_MAX: usize = 96 * 1024;

/// Kinds of messages.
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;

/// The random number of a ServerHello that asks for another first message (RFC 8446 4.1.3).
const ASKS_AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const SUPPORTED_VERSIONS: u16 = 43;
const TLS13: u16 = 0x0304;

/// What a server has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFlight {
    /// It has chosen.
    Chosen {
        /// `0x0303` for TLS 1.2, `0x0304` for 1.3.
        version: u16,
        /// The number of the cipher.
        cipher: u16,
        /// Its certificates, its own first. `None`: it shows none that could be seen, with TLS 1.3
        /// or where an earlier session goes on.
        chain: Option<Vec<CertificateDer<'static>>>,
    },
    /// It asks for another first message (HelloRetryRequest).
    AsksAgain {
        /// As above.
        version: u16,
        /// As above.
        cipher: u16,
    },
    /// It refuses, with this alert.
    Refused(u8),
}

/// Reads the first answer of a server from its front; `None`: more bytes are needed.
///
/// # Errors
/// The bytes are no such answer, or one that is too long.
pub fn read_server_flight(bytes: &[u8]) -> Result<Option<ServerFlight>, NotTls> {
    let within = bytes.get(..FLIGHT_BYTES_MAX).unwrap_or(bytes);
    match read(within)? {
        None if bytes.len() >= FLIGHT_BYTES_MAX => Err(NotTls::TooLong),
        read => Ok(read),
    }
}

fn read(bytes: &[u8]) -> Result<Option<ServerFlight>, NotTls> {
    let mut messages = Messages { rest: bytes, has: Vec::new(), chosen: None };
    loop {
        let next = match messages.next()? {
            Next::More => return Ok(None),
            Next::Refused(alert) => return Ok(Some(ServerFlight::Refused(alert))),
            next => next,
        };
        let Some((version, cipher)) = messages.chosen else {
            let Next::Message(SERVER_HELLO, content) = next else {
                return Err(NotTls::Broken("it is no ServerHello"));
            };
            let (chosen, asks_again) = parse_hello(Reader(&content))?;
            if asks_again {
                let (version, cipher) = chosen;
                return Ok(Some(ServerFlight::AsksAgain { version, cipher }));
            }
            if chosen.0 >= TLS13 {
                let (version, cipher) = chosen;
                return Ok(Some(ServerFlight::Chosen { version, cipher, chain: None }));
            }
            messages.chosen = Some(chosen);
            continue;
        };
        let chain = match next {
            Next::Message(CERTIFICATE, content) => {
                let mut content = Reader(&content);
                let chain = content.certificates()?;
                if !content.is_empty() {
                    return Err(NotTls::Broken("something follows the certificates"));
                }
                Some(chain).filter(|chain| !chain.is_empty())
            }
            // The session goes on, or nobody shows a certificate.
            _ => None,
        };
        return Ok(Some(ServerFlight::Chosen { version, cipher, chain }));
    }
}

/// What comes next.
enum Next {
    /// It is not there yet.
    More,
    /// A message: its kind and content.
    Message(u8, Vec<u8>),
    /// The keys change: what follows is encrypted.
    Encrypted,
    /// An alert.
    Refused(u8),
}

/// The messages of records, joined.
struct Messages<'a> {
    rest: &'a [u8],
    /// Bytes of messages that are taken out of records, and not read yet.
    has: Vec<u8>,
    /// The version and the cipher, once the server has told them.
    chosen: Option<(u16, u16)>,
}

impl Messages<'_> {
    fn next(&mut self) -> Result<Next, NotTls> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            let Some((record, behind)) = record(self.rest)? else { return Ok(Next::More) };
            if !record.is_whole {
                return Ok(Next::More);
            }
            self.rest = behind;
            match record.kind {
                HANDSHAKE => self.has.extend_from_slice(record.content),
                _ if !self.has.is_empty() => {
                    return Err(NotTls::Broken("another record is in its middle"));
                }
                ALERT => match record.content {
                    // A warning, such as that it does not know the name; the answer follows.
                    [1, alert] if *alert != CLOSE_NOTIFY => {}
                    [_, alert] => return Ok(Next::Refused(*alert)),
                    _ => return Err(NotTls::Broken("an alert")),
                },
                CHANGE_CIPHER_SPEC if self.chosen.is_some() => return Ok(Next::Encrypted),
                _ => return Err(NotTls::Broken("it is no ServerHello")),
            }
        }
    }

    /// A message that is whole.
    fn take(&mut self) -> Result<Option<Next>, NotTls> {
        let Some((&[kind, high, middle, low], _)) =
            self.has.split_first_chunk::<MESSAGE_HEAD_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > FLIGHT_BYTES_MAX {
            return Err(NotTls::TooLong);
        }
        let end = MESSAGE_HEAD_BYTES + length;
        if self.has.len() < end {
            return Ok(None);
        }
        let behind = self.has.split_off(end);
        let mut message = std::mem::replace(&mut self.has, behind);
        Ok(Some(Next::Message(kind, message.split_off(MESSAGE_HEAD_BYTES))))
    }
}

const CLOSE_NOTIFY: u8 = 0;

/// The version and the cipher that a server has chosen, and whether it asks for another first
/// message.
fn parse_hello(mut reader: Reader<'_>) -> Result<((u16, u16), bool), NotTls> {
    let mut version = reader.u16()?;
    let asks_again = reader.bytes(ASKS_AGAIN.len())? == ASKS_AGAIN;
    reader.vector8()?;
    let cipher = reader.u16()?;
    reader.u8()?;
    if !reader.is_empty() {
        let mut extensions = reader.vector16()?;
        if !reader.is_empty() {
            return Err(NotTls::Broken("something follows its extensions"));
        }
        while !extensions.is_empty() {
            let kind = extensions.u16()?;
            let mut content = extensions.vector16()?;
            if kind == SUPPORTED_VERSIONS {
                version = content.u16()?;
            }
        }
    }
    Ok(((version, cipher), asks_again))
}

#[cfg(test)]
mod tests;
