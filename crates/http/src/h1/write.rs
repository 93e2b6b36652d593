//! Heads to bytes. The caller writes a start line, fields, and the empty line.

use crate::method::Version;
use crate::syntax::{is_token, is_value_byte};

/// Appends a request line. `method` and `target` come from a parsed head or are the caller's own.
pub fn write_request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8], version: Version) {
    debug_assert!(is_token(method) && target.iter().all(|&byte| byte > b' ' && byte != 0x7f));
    for part in [method, b" ", target, b" ", version.as_str().as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends a status line. `status` is 100 to 999; `reason` may be empty.
pub fn write_status_line(out: &mut Vec<u8>, version: Version, status: u16, reason: &[u8]) {
    debug_assert!((100..1000).contains(&status) && reason.iter().copied().all(is_value_byte));
    let mut digits = itoa::Buffer::new();
    for part in
        [version.as_str().as_bytes(), b" ", digits.format(status).as_bytes(), b" ", reason, b"\r\n"]
    {
        out.extend_from_slice(part);
    }
}

/// Appends one field line. Name and value come from a parsed head or are the caller's own; text
/// from anywhere else goes through [`Fields::push_named`](crate::Fields::push_named), which cannot
/// be made to end a line.
#[inline]
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(is_token(name) && value.iter().copied().all(is_value_byte));
    out.reserve(name.len() + value.len() + 4);
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends the empty line that ends a head.
pub fn write_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_heads() {
        let mut out = Vec::new();
        write_request_line(&mut out, b"GET", b"/a", Version::Http11);
        write_field(&mut out, b"Host", b"h");
        write_end(&mut out);
        write_status_line(&mut out, Version::Http10, 404, b"Not Found");
        write_status_line(&mut out, Version::Http11, 299, b"");
        assert_eq!(
            out,
            b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nHTTP/1.0 404 Not Found\r\nHTTP/1.1 299 \r\n"
        );
    }
}
