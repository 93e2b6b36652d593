//! Messages by a grammar that knows where readers differ, and then damaged.

use humboldt_base::rng::Rng;

const LENGTHS: &[&str] = &[
    "0",
    "5",
    "5",
    "5",
    "05",
    "+5",
    "-5",
    "5, 5",
    "5,6",
    "5,",
    ",5",
    "",
    "5 ",
    "0x5",
    "5a",
    "18446744073709551615",
    "9223372036854775807",
    "9223372036854775808",
    "4294967301",
    "00000000000000000000005",
];

const CODINGS: &[&str] = &[
    "chunked",
    "chunked",
    "chunked",
    "chunked",
    "Chunked",
    "chunked, chunked",
    "gzip, chunked",
    "chunked, gzip",
    "identity",
    "gzip",
    "xchunked",
    "chunked;a=b",
    "\"chunked\"",
    "",
    " chunked\t",
    ",chunked",
    "chunked,",
    "identity, chunked",
    "\x0bchunked",
];

const CONNECTIONS: &[&str] = &[
    "close",
    "keep-alive",
    "Keep-Alive, Close",
    "close, keep-alive",
    "upgrade",
    "X-A",
    ",",
    "",
    "\"close\"",
    "closed",
    "te, close",
];

const FIELDS: &[&str] = &[
    "X-A: b\r\n",
    "X-A:b\r\n",
    "X-A: \r\n",
    "X-A:\t b \t\r\n",
    "X-A: b\r\nX-A: c\r\n",
    "Accept: */*\r\n",
    "X-A: \u{e9}\r\n",
    "X-A : b\r\n",
    "X-A: b\r\n c\r\n",
    "X-A\r\n",
    ": b\r\n",
    "X(A): b\r\n",
    "Expect: 100-continue\r\n",
    "Trailer: X-T\r\n",
    "TE: trailers\r\n",
    "Host: b\r\n",
    "Upgrade: a\r\n",
    "X-A: b\n",
    "X-A: \"b\r\n",
    "Proxy-Connection: close\r\n",
    "Proxy-Connection: keep-alive\r\n",
    "Content-Type: a/b\r\n",
    "Date: x\r\n",
];

const REQUEST_LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "GET / HTTP/1.1\r\n",
    "POST /a?b=c HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "HEAD / HTTP/1.1\r\n",
    "GET / HTTP/1.0\r\n",
    "POST / HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "GET http://h/a HTTP/1.1\r\n",
    "CONNECT h:443 HTTP/1.1\r\n",
    "TRACE / HTTP/1.1\r\n",
    "BREW /pot HTTP/1.1\r\n",
    "PUT /%zz HTTP/1.1\r\n",
    "GET /a#b HTTP/1.1\r\n",
    "GET / HTTP/2.0\r\n",
    "GET  / HTTP/1.1\r\n",
    "GET /a b HTTP/1.1\r\n",
    "\r\nGET / HTTP/1.1\r\n",
    "get / HTTP/1.1\r\n",
    "GET /|{}^ HTTP/1.1\r\n",
    "GET /\u{e9} HTTP/1.1\r\n",
    "GET * HTTP/1.1\r\n",
    "GET a HTTP/1.1\r\n",
    "GET ?a HTTP/1.1\r\n",
    "GET /` HTTP/1.1\r\n",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n",
];

const STATUS_LINES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.1 200 \r\n",
    "HTTP/1.1 204 No\r\n",
    "HTTP/1.1 304 Not\r\n",
    "HTTP/1.1 206 Part\r\n",
    "HTTP/1.1 404 \u{e9}\r\n",
    "HTTP/1.1 999 X\r\n",
    "HTTP/1.1 099 X\r\n",
    "HTTP/1.1 1000 X\r\n",
    "HTTP/1.1 101 Switch\r\n",
    "HTTP/1.2 200 OK\r\n",
    "HTTP/2.0 200 OK\r\n",
    "HTTP/1.1  200 OK\r\n",
    "http/1.1 200 OK\r\n",
    "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 103 E\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 199 X\r\n\r\nHTTP/1.1 200 OK\r\n",
    "\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\n",
    "ICY 200 OK\r\n",
];

const SIZES: &[&str] = &[
    "5",
    "5",
    "5",
    "05",
    "5;a",
    "5;a=b",
    "5;a=\"b;c\\\"\"",
    "5 ",
    "5 ;a",
    " 5",
    "+5",
    "0x5",
    "5g",
    "",
    "fffffffffffffff",
    "10000000000000005",
    "ffffffffffffffff",
    "5;",
    "5;;",
    "5;a=\"b",
    "5;a b",
    "5\t;a= b",
    "100000005",
];

const TRAILERS: &[&str] = &[
    "",
    "",
    "",
    "X-T: 1\r\n",
    "X-T:\r\nX-U: 2\r\n",
    "Content-Length: 9\r\n",
    "ETag: \"a\"\r\n",
    "X-T : 1\r\n",
    "X-T\r\n",
    "X-T: 1\r\n 2\r\n",
    "X-T: 1\n",
    ": 1\r\n",
];

const DATA_ENDS: &[&str] =
    &["", "\n", "\r", "\r\r\n", "x\n", "\rx", "xx", "\n\n", "\n\r", " \r\n", "\r\n\r\n"];

/// Fragments that damage inserts.
const SPLINTERS: &[&str] = &[
    "\r",
    "\n",
    "\r\n",
    "\n\r",
    "\0",
    " ",
    "\t",
    ":",
    ";",
    ",",
    "0",
    "5",
    "\"",
    "\x0b",
    "\x7f",
    "\u{ff}",
    "\r\n\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "0\r\n\r\n",
    "Host: a\r\n",
    "HTTP/1.1",
    "-",
    "#",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len() as u64) as usize]
}

fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

/// Field lines, and a body that suits them more often than not.
fn rest(rng: &mut Rng, out: &mut String) {
    let mut is_chunked = false;
    let mut has_length = false;
    for _ in 0..rng.below(5) {
        match rng.below(6) {
            0 | 1 => out.push_str(pick(rng, FIELDS)),
            2 => {
                let value = if one_in(rng, 2) { "5" } else { pick(rng, LENGTHS) };
                *out += &format!("Content-Length: {value}\r\n");
                has_length = true;
            }
            3 => {
                *out += &format!("Transfer-Encoding: {}\r\n", pick(rng, CODINGS));
                is_chunked = true;
            }
            4 => *out += &format!("Connection: {}\r\n", pick(rng, CONNECTIONS)),
            _ => *out += "X-B: c\r\n",
        }
    }
    *out += "\r\n";
    if is_chunked {
        chunks(rng, out);
    } else if has_length {
        out.push_str(&"hello there"[..[5, 5, 5, 4, 9][rng.below(5) as usize]]);
    }
}

fn chunks(rng: &mut Rng, out: &mut String) {
    for _ in 0..rng.below(4) {
        let size = if one_in(rng, 2) { "5" } else { pick(rng, SIZES) };
        let extension = if one_in(rng, 200) {
            ";a=bcdefgh".repeat(90 + rng.below(20) as usize)
        } else {
            String::new()
        };
        let end = if one_in(rng, 16) { pick(rng, DATA_ENDS) } else { "\r\n" };
        *out += &format!("{size}{extension}\r\nhello{end}");
    }
    *out += if one_in(rng, 8) { "00;x\r\n" } else { "0\r\n" };
    let trailers = if one_in(rng, 100) { 50 + rng.below(100) as usize } else { 1 };
    *out += &pick(rng, TRAILERS).repeat(trailers);
    *out += "\r\n";
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    let len = (rng.below(12) as usize).min(bytes.len() - at);
    match rng.below(6) {
        0 => drop(bytes.drain(at..at + len.min(2))),
        1 => bytes.truncate(at),
        2 => {
            let piece = bytes[at..at + len].to_vec();
            bytes.splice(at..at, piece);
        }
        3 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
        4 if at < bytes.len() => bytes[at] ^= 0x20,
        _ => {
            let splinter: Vec<u8> = pick(rng, SPLINTERS).chars().map(|c| c as u8).collect();
            bytes.splice(at..at, splinter);
        }
    }
}

/// Repeats a line, or makes it longer, so that the readers' bounds are reached.
fn swell(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let kind = rng.below(4);
    if let (0, false, Some(slash)) =
        (kind, bytes.starts_with(b"HTTP"), bytes.iter().position(|&byte| byte == b'/'))
    {
        bytes.splice(slash..slash, b"/a".repeat(15_000 + rng.below(5_000) as usize));
        return;
    }
    // In half of the cases a line near the end.
    let mut starts: Vec<usize> = (1..bytes.len()).filter(|&at| bytes[at - 1] == b'\n').collect();
    if one_in(rng, 2) {
        starts.drain(..starts.len().saturating_sub(3));
    }
    let Some(&at) = starts.get(rng.below(starts.len() as u64) as usize) else { return };
    let rest = &bytes[at..];
    let line =
        &rest[..rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1)];
    let piece = match kind {
        1 => format!("X-L: {}\r\n", "x".repeat(60_000 + rng.below(10_000) as usize)).into_bytes(),
        _ => line.repeat(50 + rng.below(100) as usize),
    };
    bytes.splice(at..at, piece);
}

/// One case: its kind and pieces (see `check`), and its bytes.
pub(crate) fn case(rng: &mut Rng) -> (u8, Vec<u8>) {
    let kind = rng.below(8) as u8;
    let pieces = if one_in(rng, 3) { 0 } else { rng.below(32) as u8 };
    let mut text = String::new();
    if kind < 4 {
        for _ in 0..=rng.below(3) {
            text += pick(rng, REQUEST_LINES);
            if !one_in(rng, 16) {
                text += "Host: a\r\n";
            }
            rest(rng, &mut text);
        }
    } else {
        text += pick(rng, STATUS_LINES);
        rest(rng, &mut text);
        if one_in(rng, 6) {
            text += "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";
        }
    }
    // Latin-1: `\u{e9}` is one byte
    let mut bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    for _ in 0..rng.below(4).saturating_sub(1) {
        damage(rng, &mut bytes);
    }
    if one_in(rng, 200) {
        swell(rng, &mut bytes);
        // Single bytes of a long message would cost more time than they are worth.
        return (kind, bytes);
    }
    (pieces << 3 | kind, bytes)
}
