//! The known differences between the two readers, with the reason why each is right. Every other
//! difference is a finding.

use crate::reading::Verdict;

/// Classes of messages that we refuse and hyper accepts.
pub(crate) const STRICTER: &[(&str, &str)] = &[
    (
        "head: AmbiguousLength",
        "Transfer-Encoding beside Content-Length: hyper drops the length (RFC 9112 6.3 allows both)",
    ),
    (
        "head: ContentLength",
        "repeated lengths of a request, and lengths beyond 63 bits, which others cannot count",
    ),
    (
        "head: Expectation",
        "an unknown Expect gets 417 (RFC 9110 10.1.1); hyper leaves it to its user",
    ),
    (
        "head: FieldLine",
        "bare LF, which hyper takes for a line end (RFC 9112 2.2 allows that to an end, not to an intermediary)",
    ),
    (
        "head: Host",
        "missing, repeated and malformed Host (RFC 9112 3.2); hyper leaves it to its user",
    ),
    ("head: MethodTooLong", "a bound"),
    ("head: RequestLine", "empty lines with a bare LF before a request, or too many of them"),
    ("head: StatusLine", "empty lines before an answer, and statuses below 100"),
    ("head: Target", "targets whose form does not suit their method, and fragments (RFC 9112 3.2)"),
    ("head: TargetTooLong", "a target beyond 32 KB; hyper takes 64"),
    ("head: TooLarge", "a head beyond 64 KB; hyper takes 400"),
    (
        "head: TransferEncoding",
        "anything but one `chunked`: empty elements, repetition, other codings until the end",
    ),
    ("head: UnexpectedContent", "TRACE and CONNECT with a body (RFC 9110 9.3.6, 9.3.8)"),
    ("head: UnknownCoding", "a coding before `chunked` that the proxy cannot undo"),
    ("head: Version", "a version is refused before the rest of the head has come"),
    (
        "body: ChunkExtension",
        "extensions that do not follow the grammar; hyper skips everything up to CR",
    ),
    ("body: ChunkOverhead", "a line of more than 1 KB, or framing out of proportion"),
    ("body: ChunkSize", "sizes of 2^60 and more, which overflow elsewhere"),
    ("body: Trailer", "trailers are checked byte by byte, and before their end has come"),
    ("body: TrailerTooLarge", "more than 64 trailers; hyper takes as many as fields"),
];

/// Classes of messages that hyper refuses and we accept.
pub(crate) const LAXER: &[(&str, &str)] = &[(
    "head: invalid URI",
    "bytes that RFC 3986 has no place for, as a backquote: browsers send them, and a proxy passes them on as they are",
)];

/// Classes of messages that hyper refuses while we wait for more.
pub(crate) const LATER: &[(&str, &str)] = &[(
    "head: invalid HTTP version parsed",
    "a version is complete before it is refused, so that another one gets 505 and garbage 400",
)];

/// Whether this difference is known.
pub(crate) fn is_known(verdict: &Verdict) -> bool {
    let (table, class) = match verdict {
        Verdict::Same => return true,
        Verdict::Stricter(class) => (STRICTER, class),
        Verdict::Laxer(class) => (LAXER, class),
        Verdict::Later(class) => (LATER, class),
        Verdict::Different(_) => return false,
    };
    table.iter().any(|(known, _)| known == class)
}
