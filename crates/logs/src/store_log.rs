//! store.log: events of stored objects, in Squid's format.

use humboldt_base::clock::UnixMillis;

use crate::text::{Escape, push_escaped, push_number, push_padded};

/// An event of an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StoreAction {
    /// It was created.
    Create,
    /// It was read from a cache directory.
    SwapIn,
    /// It was written to a cache directory.
    SwapOut,
    /// It was removed.
    Release,
    /// Writing it to a cache directory failed.
    SwapOutFail,
}

impl StoreAction {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Create => b"CREATE",
            Self::SwapIn => b"SWAPIN",
            Self::SwapOut => b"SWAPOUT",
            Self::Release => b"RELEASE",
            Self::SwapOutFail => b"SO_FAIL",
        }
    }
}

/// The facts about the answer while it is in memory. Times are unix seconds, -1 when unknown.
#[derive(Copy, Clone, Debug)]
pub struct StoredAnswer<'a> {
    /// Its status.
    pub status: u16,
    /// Its Date.
    pub date: i64,
    /// Its Last-Modified.
    pub last_modified: i64,
    /// Its Expires.
    pub expires: i64,
    /// Its Content-Type.
    pub content_type: Option<&'a [u8]>,
    /// Its Content-Length, if it has one.
    pub content_length: Option<u64>,
    /// Bytes of the body that are there.
    pub body_bytes: u64,
    /// The method it answered.
    pub method: &'a [u8],
    /// Its URL.
    pub url: &'a [u8],
}

/// One line of store.log.
#[derive(Copy, Clone, Debug)]
pub struct StoreRecord<'a> {
    /// When.
    pub at: UnixMillis,
    /// The event.
    pub action: StoreAction,
    /// Number of the cache directory and of the file in it; `None` when it is in memory only.
    pub place: Option<(u16, u32)>,
    /// The object's key.
    pub key: u128,
    /// The answer, when it is in memory.
    pub answer: Option<StoredAnswer<'a>>,
}

impl StoreRecord<'_> {
    /// Appends the record as one line, newline included.
    pub fn write(&self, out: &mut Vec<u8>) {
        push_padded(out, self.at.secs(), 9, b' ');
        out.push(b'.');
        push_padded(out, self.at.millis_of_sec(), 3, b'0');
        out.push(b' ');
        let action = self.action.name();
        out.extend_from_slice(action);
        out.extend(std::iter::repeat_n(b' ', 7_usize.saturating_sub(action.len())));
        out.push(b' ');
        match self.place {
            Some((directory, file)) => {
                push_padded(out, directory, 2, b'0');
                out.push(b' ');
                push_hex(out, file.into(), 8);
            }
            None => out.extend_from_slice(b"-1 FFFFFFFF"),
        }
        out.push(b' ');
        push_hex(out, self.key, 32);
        match &self.answer {
            Some(answer) => answer.write(out),
            None => out.extend_from_slice(b"   ?         ?         ?         ? ?/? ?/? ? ?"),
        }
        out.push(b'\n');
    }
}

impl StoredAnswer<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b' ');
        push_padded(out, self.status, 4, b' ');
        for time in [self.date, self.last_modified, self.expires] {
            out.push(b' ');
            push_padded(out, time, 9, b' ');
        }
        out.push(b' ');
        match self.content_type {
            Some(content_type) if !content_type.is_empty() => {
                let end = content_type.iter().position(|byte| matches!(byte, b';' | b' '));
                push_escaped(out, &content_type[..end.unwrap_or(content_type.len())], Escape::Url);
            }
            _ => out.extend_from_slice(b"unknown"),
        }
        out.push(b' ');
        match self.content_length {
            Some(bytes) => push_number(out, bytes),
            None => out.extend_from_slice(b"-1"),
        }
        out.push(b'/');
        push_number(out, self.body_bytes);
        for word in [self.method, self.url] {
            out.push(b' ');
            push_escaped(out, word, Escape::Url);
        }
    }
}

/// Upper-case hexadecimal with `digits` digits (at most 32).
fn push_hex(out: &mut Vec<u8>, number: u128, digits: u32) {
    for digit in (0..digits.min(32)).rev() {
        let nibble = (number >> (4 * digit)) as u8 & 15;
        out.push(if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(record: &StoreRecord<'_>) -> String {
        let mut out = Vec::new();
        record.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn writes_squids_columns() {
        let answer = StoredAnswer {
            status: 200,
            date: 1_700_000_000,
            last_modified: 999,
            expires: -1,
            content_type: Some(b"text/html; charset=utf-8"),
            content_length: None,
            body_bytes: 13_312,
            method: b"GET",
            url: b"http://a.example/\n",
        };
        let key = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        let mut record = StoreRecord {
            at: UnixMillis(1_700_000_000_042),
            action: StoreAction::SwapOut,
            place: Some((0, 0x1f)),
            key,
            answer: Some(answer),
        };
        let expected = "1700000000.042 SWAPOUT 00 0000001F 0123456789ABCDEF0123456789ABCDEF  200 1700000000 \
                        \x20     999        -1 text/html -1/13312 GET http://a.example/%0A\n";
        assert_eq!(line(&record), expected);
        record.action = StoreAction::Release;
        record.place = None;
        record.answer = None;
        let expected = "1700000000.042 RELEASE -1 FFFFFFFF 0123456789ABCDEF0123456789ABCDEF   ?         ?  \
                        \x20      ?         ? ?/? ?/? ? ?\n";
        assert_eq!(line(&record), expected);
    }
}
