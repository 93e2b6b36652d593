//! Heads from text, for tools that ask about a request without sending it.

use crate::h1::{HeadError, parse_request};
use crate::head::{HeadLimits, RequestHead};

/// Reads a head that is all of `text`; `None` if there is less or more.
///
/// # Errors
/// As for [`parse_request`].
pub fn request_head(text: &[u8], limits: &HeadLimits) -> Result<Option<RequestHead>, HeadError> {
    let mut head = RequestHead::default();
    let length = parse_request(text, limits, &mut head)?;
    Ok(length.filter(|&length| length == text.len()).map(|_| head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_all_of_the_text() {
        let read = |text: &str| request_head(text.as_bytes(), &HeadLimits::default());
        let text = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let head = read(text).expect("well-formed").expect("whole");
        assert_eq!(head.method_bytes(), b"GET");
        assert!(read(&format!("{text}GET")).expect("well-formed").is_none(), "more");
        assert!(read(&text[..text.len() - 2]).expect("well-formed").is_none(), "less");
        assert!(read("GET\r\n\r\n").is_err());
    }
}
