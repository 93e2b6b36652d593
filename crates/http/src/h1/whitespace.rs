//! Request lines with white space in the target, which RFC 9112 3.2 lets a server refuse, and which
//! some files of Squid want mended (`uri_whitespace`). Nothing is mended that would leave open
//! where the target ends.

use memchr::{memchr, memrchr};

use super::error::HeadError;
use crate::head::TargetWhitespace;

/// The request line at the start of `input` without white space in its target, and how many bytes
/// of `input` it took; `None` when more input is needed.
///
/// # Errors
/// All other errors of the line, and targets that begin or end with white space, or in which a
/// version of HTTP could be meant to end the line.
pub(super) fn mended(
    input: &[u8],
    treatment: TargetWhitespace,
    line_bytes_max: usize,
) -> Result<Option<(Vec<u8>, usize)>, HeadError> {
    let Some(end) = memchr(b'\n', input) else {
        let is_long = input.len() > line_bytes_max;
        return if is_long { Err(HeadError::TargetTooLong) } else { Ok(None) };
    };
    let line = input.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(HeadError::RequestLine)?;
    let (first, last) = (memchr(b' ', line), memrchr(b' ', line));
    let (Some(first), Some(last)) = (first, last) else { return Err(HeadError::RequestLine) };
    let target = line.get(first + 1..last).ok_or(HeadError::RequestLine)?;
    let words: Vec<&[u8]> = target.split(|byte| is_white(*byte)).collect();
    let [start, others @ ..] = &words[..] else { return Err(HeadError::RequestLine) };
    let is_mendable = !start.is_empty()
        && others.last().is_some_and(|word| !word.is_empty())
        && !others.iter().any(|word| word.starts_with(b"HTTP/"));
    if !is_mendable {
        return Err(HeadError::RequestLine);
    }
    let mut out = line.get(..=first).unwrap_or_default().to_vec();
    match treatment {
        TargetWhitespace::Refused => return Err(HeadError::RequestLine),
        TargetWhitespace::Removed => out.extend(words.concat()),
        TargetWhitespace::CutOff => out.extend_from_slice(start),
        TargetWhitespace::Encoded => {
            for byte in target {
                match byte {
                    b' ' => out.extend_from_slice(b"%20"),
                    b'\t' => out.extend_from_slice(b"%09"),
                    byte => out.push(*byte),
                }
            }
        }
    }
    out.extend_from_slice(line.get(last..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
    Ok(Some((out, end + 1)))
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::parse_request;
    use crate::head::{HeadLimits, RequestHead};

    fn read(
        input: &str,
        whitespace: TargetWhitespace,
    ) -> Result<Option<(String, usize)>, HeadError> {
        let limits = HeadLimits { whitespace, ..HeadLimits::default() };
        let mut head = RequestHead::default();
        let used = parse_request(input.as_bytes(), &limits, &mut head)?;
        let target = String::from_utf8_lossy(head.target_bytes()).into_owned();
        Ok(used.map(|used| (target, used)))
    }

    const REST: &str = " HTTP/1.1\r\nHost: a.test\r\n\r\n";

    #[test]
    fn white_space_is_removed_encoded_or_cut_off() {
        use TargetWhitespace::{CutOff, Encoded, Removed};
        for (target, whitespace, wanted) in [
            ("/a b\tc", Removed, "/abc"),
            ("/a b\tc", Encoded, "/a%20b%09c"),
            ("/a b\tc", CutOff, "/a"),
            ("/a  b", Encoded, "/a%20%20b"),
            ("http://a.test/x y?z=1 2", Encoded, "http://a.test/x%20y?z=1%202"),
            ("/plain", Removed, "/plain"),
        ] {
            let input = format!("GET {target}{REST}");
            let more = format!("{input}GET /next{REST}");
            assert_eq!(read(&more, whitespace), Ok(Some((wanted.to_owned(), input.len()))));
            for end in 0..input.len() {
                let early = read(&input[..end], whitespace);
                assert_eq!(early, Ok(None), "{:?}", &input[..end]);
            }
        }
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        use TargetWhitespace::{Encoded, Refused};
        assert!(read(&format!("GET /a b{REST}"), Refused).is_err(), "the default");
        for line in [
            "GET  /a HTTP/1.1\r\n",
            "GET /a  HTTP/1.1\r\n",
            "GET /a HTTP/1.1 HTTP/1.1\r\n",
            "GET /a HTTP/1.0 b HTTP/1.1\r\n",
            "GET /a b HTTP/1.1\n",
            "GET /a b\r\n",
            "GET /a\x0bb HTTP/1.1\r\n",
            "GET /a b\rc HTTP/1.1\r\n",
            "G\tT /a b HTTP/1.1\r\n",
        ] {
            assert!(read(&format!("{line}Host: a.test\r\n\r\n"), Encoded).is_err(), "{line:?}");
        }
        let long = format!("GET /a {}", "b".repeat(70_000));
        assert!(read(&long, Encoded).is_err(), "without an end");
        let other = "GET /a b HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n".to_owned();
        assert!(read(&other, Encoded).is_err(), "all else is as strict as before");
    }
}
