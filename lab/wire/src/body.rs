//! The length of a message's body: RFC 9112 section 6.3, where it leaves no choice.

use crate::head::{HeadError, Headers, is_token_in_list};

/// The rule for the end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    None,
    /// This many bytes. May be 0.
    Length(u64),
    /// Chunks: see [`Chunked`](crate::Chunked).
    Chunked,
    /// Everything up to the end of the connection. Only in answers.
    UntilClose,
}

/// The fields of a head that decide on the connection and the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    pub(crate) content_length: Option<u64>,
    pub(crate) chunked: bool,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

impl Framing {
    /// Looks at one field. Which fields matter is told by their length first: this runs for every
    /// line of every head.
    #[inline]
    pub(crate) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= is_token_in_list(value, b"close");
                self.keep_alive |= is_token_in_list(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or(HeadError::ContentLength)?;
                if self.content_length.replace(length).is_some_and(|before| before != length) {
                    return Err(HeadError::ContentLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadError::TransferEncoding);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Fields that contradict each other: both lengths, or chunks in HTTP/1.0.
    pub(crate) fn check(&self, minor: u8) -> Result<(), HeadError> {
        if self.chunked && (self.content_length.is_some() || minor == 0) {
            return Err(HeadError::TransferEncoding);
        }
        Ok(())
    }

    /// Whether the connection may be used again after this message.
    pub(crate) fn keeps_alive(&self, minor: u8) -> bool {
        !self.close && (minor >= 1 || self.keep_alive)
    }

    /// The framing that the head itself announces, if it does.
    pub(crate) fn announced(&self) -> Option<BodyLength> {
        if self.chunked {
            Some(BodyLength::Chunked)
        } else {
            self.content_length.map(BodyLength::Length)
        }
    }
}

/// The first value of a field, by name in any case.
pub(crate) fn first<'a>(headers: Headers<'a>, name: &[u8]) -> Option<&'a [u8]> {
    headers.into_iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Digits only: no sign, no space, no list; at most a `u64`.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}
