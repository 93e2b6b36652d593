//! One case: the same bytes in the same pieces for both readers.

use crate::reading::{Verdict, compare};
use crate::{ours, theirs};
use humboldt_http::Method;

/// Reads `bytes` both ways. `selector` chooses their kind and their pieces. Kinds 0 to 3 are
/// requests; the others are answers to GET, to HEAD, to CONNECT. Pieces are the whole, single
/// bytes, or as long as its upper bits say.
pub(crate) fn check(selector: u8, bytes: &[u8]) -> Verdict {
    let piece_bytes = match selector >> 3 {
        0 => bytes.len().max(1),
        bytes => usize::from(bytes),
    };
    let pieces: Vec<&[u8]> = bytes.chunks(piece_bytes).collect();
    let (own, method) = match selector & 7 {
        0..4 => return compare(&ours::requests(&pieces), &theirs::requests(&pieces)),
        4 => (Method::Head, "HEAD"),
        5 => (Method::Connect, "CONNECT"),
        _ => (Method::Get, "GET"),
    };
    compare(&ours::response(&pieces, own), &theirs::response(&pieces, method))
}
