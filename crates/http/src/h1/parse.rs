//! Heads from bytes. `httparse` tokenises; input that it tolerates and this proxy does not is
//! refused here.

use std::mem::MaybeUninit;

use memchr::{memchr, memchr_iter};

use super::error::HeadError;
use super::framing::{Framing, request_framing};
use super::{relaxed, whitespace};
use crate::fields::{FIELDS_BYTES_MAX, Field, Fields, Span};
use crate::head::{HeadLimits, RequestHead, ResponseHead, Target, TargetWhitespace};
use crate::method::{METHOD_BYTES_MAX, Method, Version};
use crate::name::FieldName;
use crate::uri::{self, Places};

/// Most field lines any [`HeadLimits`] can allow.
pub const HEAD_FIELDS_LIMIT: usize = 10_000;

/// Field lines for which there is room on the stack. A head of more is read again, with room from
/// the allocator.
const STACK_FIELDS: usize = 128;

/// Most empty lines skipped before a request line (RFC 9112 2.2 asks for at least one).
pub const LEADING_CRLF_MAX: usize = 4;

/// Most options in `Connection`. Each may name a field, so each field is compared with each option:
/// without a bound, a head of 64 KB would cost a thousand times as much as other heads of that
/// size.
const CONNECTION_OPTIONS_MAX: usize = 64;

/// Longest rest of a request line beside the target, in bytes: method, spaces, version.
const REQUEST_LINE_REST_BYTES: usize = METHOD_BYTES_MAX + 12;

/// Reads a request head from the start of `input` into `out`, whose buffers are reused.
///
/// `Ok(Some(n))`: the head is complete and took `n` bytes, skipped empty lines included.
/// `Ok(None)`: more input is needed. Framing, `Host` and the form of the target have been checked.
///
/// # Errors
/// Everything RFC 9112 asks or allows a server to refuse; `out` then holds nothing meaningful.
pub fn parse_request(
    input: &[u8],
    limits: &HeadLimits,
    out: &mut RequestHead,
) -> Result<Option<usize>, HeadError> {
    let Some(skipped) = skip_empty_lines(input)? else { return Ok(None) };
    let input = input.get(skipped..).unwrap_or_default();
    let head_len = match with_slots(limits, |slots| read_request(input, limits, slots, out)) {
        Err(HeadError::RequestLine) if limits.whitespace != TargetWhitespace::Refused => {
            mended_request(input, limits, out)
        }
        strict => strict,
    }?;
    Ok(head_len.map(|head_len| skipped + head_len))
}

/// Reads a head whose target has white space in it.
fn mended_request(
    input: &[u8],
    limits: &HeadLimits,
    out: &mut RequestHead,
) -> Result<Option<usize>, HeadError> {
    let line_max = limits.max_target_bytes.saturating_add(REQUEST_LINE_REST_BYTES);
    let Some((line, used)) = whitespace::mended(input, limits.whitespace, line_max)? else {
        return Ok(None);
    };
    let strict = HeadLimits { whitespace: TargetWhitespace::Refused, ..*limits };
    let mended = [&line[..], input.get(used..).unwrap_or_default()].concat();
    let head_len = with_slots(&strict, |slots| read_request(&mended, &strict, slots, out))?;
    Ok(head_len.map(|head_len| head_len.saturating_sub(line.len()) + used))
}

type Slot<'b> = MaybeUninit<httparse::Header<'b>>;

/// Reads with room for the usual number of fields, then, if that is not enough, for as many as may
/// be.
#[inline]
fn with_slots<'b, T>(
    limits: &HeadLimits,
    mut read: impl FnMut(&mut [Slot<'b>]) -> Result<T, HeadError>,
) -> Result<T, HeadError> {
    let fields_max = limits.max_fields.min(HEAD_FIELDS_LIMIT);
    let mut slots = [const { MaybeUninit::uninit() }; STACK_FIELDS];
    match read(slots.get_mut(..fields_max.min(STACK_FIELDS)).unwrap_or_default()) {
        Err(HeadError::TooManyFields) if fields_max > STACK_FIELDS => {
            read(&mut vec![MaybeUninit::uninit(); fields_max])
        }
        result => result,
    }
}

#[inline]
fn read_request<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
    slots: &mut [Slot<'b>],
    out: &mut RequestHead,
) -> Result<Option<usize>, HeadError> {
    let mut tokens = httparse::Request::new(&mut []);
    let parsed = tokens.parse_with_uninit_headers(input, slots);
    let head_len = match parsed {
        Ok(httparse::Status::Complete(head_len)) if head_len <= max_bytes(limits) => head_len,
        Ok(httparse::Status::Complete(_)) => return Err(HeadError::TooLarge),
        Ok(httparse::Status::Partial) => return partial_request(input, limits),
        Err(error) => return refused_request(error, input),
    };
    let (Some(method), Some(target), Some(minor)) = (tokens.method, tokens.path, tokens.version)
    else {
        return Err(HeadError::RequestLine);
    };
    check_request_line(method.as_bytes(), target.as_bytes(), limits)?;
    out.method = Method::from_bytes(method.as_bytes());
    out.method_span = Span::new(0, method.len());
    out.target_span = Span::new(method.len() + 1, target.len());
    out.version = version(minor);
    (out.target, out.places) = target_form(out.method, target.as_bytes())?;
    let head = input.get(..head_len).unwrap_or_default();
    record_fields(head, tokens.headers, &mut out.fields)?;
    check_host(out)?;
    check_content(out)?;
    Ok(Some(head_len))
}

/// Reads a response head from the start of `input` into `out`, whose buffers are reused. The result
/// is as for [`parse_request`]; the framing is left to
/// [`response_framing`](super::response_framing), which needs the request's method.
///
/// White space between a field name and its colon is dropped, as RFC 9112 5.1 demands of a proxy.
/// With [`HeadLimits::relaxed`], a head with bare LF or folded lines is repaired, which `out`
/// remembers.
///
/// # Errors
/// Malformed lines, bounds exceeded, a version other than 1.0 and 1.1, a status below 100.
pub fn parse_response(
    input: &[u8],
    limits: &HeadLimits,
    out: &mut ResponseHead,
) -> Result<Option<usize>, HeadError> {
    if matches!(input.first(), Some(b'\r' | b'\n')) {
        return Err(HeadError::StatusLine);
    }
    out.repaired = false;
    match with_slots(limits, |slots| read_response(input, limits, slots, out)) {
        Err(HeadError::FieldLine) if limits.relaxed => repaired_response(input, limits, out),
        strict => strict,
    }
}

/// Reads a head that is not regular.
fn repaired_response(
    input: &[u8],
    limits: &HeadLimits,
    out: &mut ResponseHead,
) -> Result<Option<usize>, HeadError> {
    let Some((head, used)) = relaxed::regular(input)? else {
        return if input.len() > max_bytes(limits) { Err(HeadError::TooLarge) } else { Ok(None) };
    };
    if used > max_bytes(limits) {
        return Err(HeadError::TooLarge);
    }
    let whole = HeadLimits { max_head_bytes: head.len(), ..*limits };
    match with_slots(limits, |slots| read_response(&head, &whole, slots, out))? {
        Some(head_len) if head_len == head.len() => {
            out.repaired = true;
            Ok(Some(used))
        }
        _ => Err(HeadError::FieldLine),
    }
}

fn read_response<'b>(
    input: &'b [u8],
    limits: &HeadLimits,
    slots: &mut [Slot<'b>],
    out: &mut ResponseHead,
) -> Result<Option<usize>, HeadError> {
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    let mut tokens = httparse::Response::new(&mut []);
    let head_len = match config.parse_response_with_uninit_headers(&mut tokens, input, slots) {
        Ok(httparse::Status::Complete(head_len)) if head_len <= max_bytes(limits) => head_len,
        Ok(httparse::Status::Complete(_)) => return Err(HeadError::TooLarge),
        Ok(httparse::Status::Partial) if input.len() > max_bytes(limits) => {
            return Err(HeadError::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyFields),
        Err(httparse::Error::Version) => return refused_version(input, HeadError::StatusLine),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => {
            return Err(HeadError::FieldLine);
        }
        Err(_) => return Err(HeadError::StatusLine),
    };
    let (Some(minor), Some(status @ 100..)) = (tokens.version, tokens.code) else {
        return Err(HeadError::StatusLine);
    };
    let head = input.get(..head_len).unwrap_or_default();
    out.version = version(minor);
    out.status = status;
    out.reason_span = reason_span(head);
    record_fields(head, tokens.headers, &mut out.fields)?;
    Ok(Some(head_len))
}

/// Whether parsing `input` may now give a head, when parsing its first `parsed_bytes` gave
/// `Ok(None)`.
///
/// A head ends with a line end, so a search between line ends finds nothing. A caller that asks
/// this first parses at most once per line, and a sender that trickles a long head byte by byte
/// cannot make each byte cost the whole head.
#[must_use]
pub fn may_complete_head(input: &[u8], parsed_bytes: usize, limits: &HeadLimits) -> bool {
    parsed_bytes == 0
        || input.len() > max_bytes(limits)
        || memchr(b'\n', input.get(parsed_bytes..).unwrap_or_default()).is_some()
}

/// The head limit, itself bounded so that spans fit.
fn max_bytes(limits: &HeadLimits) -> usize {
    limits.max_head_bytes.min(FIELDS_BYTES_MAX)
}

fn version(minor: u8) -> Version {
    if minor == 0 { Version::Http10 } else { Version::Http11 }
}

/// Length of the empty lines before the request line; `None` when they may go on.
#[inline]
fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut at = 0;
    loop {
        match input.get(at..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] if at < 2 * LEADING_CRLF_MAX => at += 2,
            [b'\r' | b'\n', ..] => return Err(HeadError::RequestLine),
            _ => return Ok(Some(at)),
        }
    }
}

/// An incomplete head: still within its bounds, or refused already.
fn partial_request(input: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
    let line_max = limits.max_target_bytes.saturating_add(REQUEST_LINE_REST_BYTES);
    if input.len() > line_max && memchr(b'\n', input.get(..=line_max).unwrap_or_default()).is_none()
    {
        return Err(HeadError::TargetTooLong);
    }
    if input.len() > max_bytes(limits) {
        return Err(HeadError::TooLarge);
    }
    Ok(None)
}

/// The meaning of the tokeniser's refusal.
fn refused_request(error: httparse::Error, input: &[u8]) -> Result<Option<usize>, HeadError> {
    match error {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Err(HeadError::FieldLine),
        httparse::Error::TooManyHeaders => Err(HeadError::TooManyFields),
        httparse::Error::Version => {
            let text = input.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
            refused_version(text, HeadError::RequestLine)
        }
        _ => Err(HeadError::RequestLine),
    }
}

/// Tells an unsupported version (505) from garbage, which is `otherwise`, once all of the version
/// is there.
fn refused_version(text: &[u8], otherwise: HeadError) -> Result<Option<usize>, HeadError> {
    let is_version = |(&byte, &wanted): (&u8, &u8)| {
        if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted }
    };
    match text.iter().zip(b"HTTP/0.0").all(is_version) {
        true if text.len() < 8 => Ok(None),
        true => Err(HeadError::Version),
        false => Err(otherwise),
    }
}

/// Lengths, and bytes a target must not contain.
#[inline]
fn check_request_line(method: &[u8], target: &[u8], limits: &HeadLimits) -> Result<(), HeadError> {
    if method.len() > METHOD_BYTES_MAX {
        return Err(HeadError::MethodTooLong);
    }
    if target.len() > limits.max_target_bytes {
        return Err(HeadError::TargetTooLong);
    }
    // The tokeniser lets through visible ASCII and UTF-8. A fragment is never sent (RFC 9112 3.2).
    if memchr(b'#', target).is_some() {
        return Err(HeadError::Target);
    }
    Ok(())
}

/// The form of the target, which must suit the method (RFC 9112 3.2), and the parts of an absolute
/// one.
#[inline]
fn target_form(method: Method, target: &[u8]) -> Result<(Target, Option<Places>), HeadError> {
    if method == Method::Connect {
        return uri::split_authority(target)
            .filter(|parts| parts.port.is_some())
            .map(|_| (Target::Authority, None))
            .ok_or(HeadError::Target);
    }
    match target {
        [b'/', ..] => Ok((Target::Origin, None)),
        b"*" if method == Method::Options => Ok((Target::Asterisk, None)),
        _ => {
            let parts = uri::split_absolute(target).ok_or(HeadError::Target)?;
            Ok((Target::Absolute, Some(Places::of(target, &parts))))
        }
    }
}

/// Copies the head's bytes and records its lines, refusing bare LF: each line must start right
/// after a CRLF. Too many options in `Connection` are refused as well.
#[inline]
fn record_fields(
    head: &[u8],
    tokens: &[httparse::Header<'_>],
    out: &mut Fields,
) -> Result<(), HeadError> {
    out.clear();
    if !head.ends_with(b"\r\n\r\n") {
        return Err(HeadError::FieldLine);
    }
    out.reserve(head.len(), tokens.len());
    out.bytes.extend_from_slice(head);
    let base = head.as_ptr().addr();
    for token in tokens {
        // The tokeniser returns slices of its input, so these differences are offsets into `head`.
        let name_start = token.name.as_ptr().addr().wrapping_sub(base);
        let value_start = token.value.as_ptr().addr().wrapping_sub(base);
        if head.get(name_start.wrapping_sub(2)..name_start) != Some(b"\r\n") {
            return Err(HeadError::FieldLine);
        }
        out.record(Field {
            id: FieldName::from_bytes(token.name.as_bytes()),
            name: Span::new(name_start, token.name.len()),
            value: Span::new(value_start, token.value.len()),
        });
    }
    let options =
        out.get_all(FieldName::Connection).map(|value| memchr_iter(b',', value).count() + 1);
    if options.sum::<usize>() > CONNECTION_OPTIONS_MAX {
        return Err(HeadError::TooLarge);
    }
    Ok(())
}

/// `Host` must occur exactly once (HTTP/1.0: at most once) and be well-formed, whatever the
/// target's form (RFC 9112 3.2). An empty one is refused: every target served here has an
/// authority.
#[inline]
fn check_host(head: &RequestHead) -> Result<(), HeadError> {
    match head.fields.get(FieldName::Host) {
        None if head.version == Version::Http10 => Ok(()),
        Some(value)
            if !head.fields.is_repeated(FieldName::Host)
                && (is_of_target(head, value) || uri::split_authority(value).is_some()) =>
        {
            Ok(())
        }
        _ => Err(HeadError::Host),
    }
}

/// Whether it is the authority of the target, which has been found well-formed: the usual case
/// where a proxy is asked.
#[inline]
fn is_of_target(head: &RequestHead, host: &[u8]) -> bool {
    head.places.is_some_and(|places| places.authority(head.target_bytes()) == host)
}

/// The framing, and whether the method and `Expect` allow it.
#[inline]
fn check_content(head: &RequestHead) -> Result<(), HeadError> {
    let framing = request_framing(head)?;
    let bodiless = matches!(framing, Framing::None | Framing::Length(0));
    // TRACE must not have content (RFC 9110 9.3.8); after CONNECT the tunnel's bytes would be
    // ambiguous.
    if !bodiless && matches!(head.method, Method::Trace | Method::Connect) {
        return Err(HeadError::UnexpectedContent);
    }
    let unknown = |value: &[u8]| !value.eq_ignore_ascii_case(b"100-continue");
    if head.fields.has(FieldName::Expect) && head.fields.list(FieldName::Expect).any(unknown) {
        return Err(HeadError::Expectation);
    }
    Ok(())
}

/// The reason phrase of a head whose status line the tokeniser accepted: the text after
/// `HTTP/1.x NNN `.
fn reason_span(head: &[u8]) -> Span {
    const START: usize = 13;
    let line_len = memchr(b'\r', head).unwrap_or(0);
    Span::new(START.min(line_len), line_len.saturating_sub(START))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_head_does_not_allocate() {
        let input =
            b"GET http://h/ HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nX-One: 1\r\nX-Two: 2\r\n\r\n";
        let mut head = RequestHead::default();
        let limits = HeadLimits::default();
        assert_eq!(parse_request(input, &limits, &mut head), Ok(Some(input.len())));
        let before = (head.fields.bytes.as_ptr(), head.fields.lines().as_ptr());
        head.clear();
        assert_eq!(parse_request(input, &limits, &mut head), Ok(Some(input.len())));
        assert_eq!((head.fields.bytes.as_ptr(), head.fields.lines().as_ptr()), before);
    }

    #[test]
    fn only_a_line_end_can_complete_a_head() {
        let limits = HeadLimits { max_head_bytes: 30, ..HeadLimits::default() };
        let input = b"GET / HTTP/1.1\r\nHost: example.org";
        assert!(may_complete_head(&input[..5], 0, &limits));
        assert!(!may_complete_head(&input[..14], 5, &limits));
        assert!(may_complete_head(&input[..16], 15, &limits));
        assert!(!may_complete_head(&input[..30], 16, &limits));
        assert!(may_complete_head(&input[..31], 30, &limits));
    }
}
