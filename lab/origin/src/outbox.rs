//! The bytes of one answer on their way out.
//!
//! A body is generated piece by piece straight into the thread's one buffer, behind the head if
//! that is still to go, so that a small answer is one call. Bytes of a body that the kernel does
//! not take are discarded and generated again later; only others are kept (a head, chunks).

use crate::answer::Answer;
use humboldt_lab_workload::BodyKey;

/// Most bytes of a body per call.
const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Room for a head, or for the frame of a chunk, beside a piece.
const FRAME_BYTES_MAX: usize = 4 * 1024;

/// The thread's buffer: allocated once.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    len: usize,
}

impl Piece {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; PIECE_BYTES_MAX as usize * 2 + FRAME_BYTES_MAX], len: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The unsent rest of an answer.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Goes before all others: the head, or the rest of a chunk that the kernel did not take.
    pub(crate) kept: Vec<u8>,
    key: Option<BodyKey>,
    begin: u64,
    at: u64,
    end: u64,
    /// Up to here `commit` has told of.
    reported: u64,
    is_chunked: bool,
    /// Of chunks: the last one is still to come.
    needs_last_chunk: bool,
}

impl Outbox {
    /// Begins an answer. The caller then writes its head to `kept`.
    pub(crate) fn begin(&mut self, answer: &Answer) {
        let (begin, end) = answer.body_range();
        let is_chunked = answer.is_chunked();
        let key = answer.body_key();
        let kept = std::mem::take(&mut self.kept);
        *self = Self {
            kept,
            key,
            begin,
            at: begin,
            end,
            reported: begin,
            is_chunked,
            needs_last_chunk: is_chunked,
        };
        self.kept.clear();
    }

    /// Whether all is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.kept.is_empty() && self.at == self.end && !self.needs_last_chunk
    }

    /// Puts together the bytes that can be sent now, if `allowed_bytes` of the body may go: often
    /// nothing.
    pub(crate) fn compose(&mut self, allowed_bytes: u64, piece: &mut Piece) {
        piece.len = 0;
        piece.push(&self.kept);
        let Some(key) = self.key else { return };
        let allowed_end = self.begin.saturating_add(allowed_bytes).min(self.end);
        let count = allowed_end.saturating_sub(self.at).min(PIECE_BYTES_MAX);
        if !self.is_chunked {
            fill(key, self.at, count, piece);
            return;
        }
        // Chunks are kept until they are gone, so a kept one goes alone.
        if !self.kept.is_empty() && self.at > self.begin {
            return;
        }
        if count > 0 {
            piece.push(format_chunk_size(count, &mut [0; 18]));
            fill(key, self.at, count, piece);
            piece.push(b"\r\n");
            self.at += count;
        }
        if self.at == self.end && self.needs_last_chunk {
            piece.push(b"0\r\n\r\n");
            self.needs_last_chunk = false;
        }
    }

    /// Notes that the kernel took the first `sent` bytes of the piece; gives how many bytes of the
    /// body are gone since the last call. (A chunk counts as gone when the kernel has taken any of
    /// it.)
    pub(crate) fn commit(&mut self, piece: &Piece, sent: usize) -> u64 {
        if self.is_chunked {
            self.kept.clear();
            self.kept.extend_from_slice(piece.bytes().get(sent..).unwrap_or_default());
        } else {
            let from_kept = sent.min(self.kept.len());
            self.kept.drain(..from_kept);
            self.at += (sent - from_kept) as u64;
        }
        let gone = self.at - self.reported;
        self.reported = self.at;
        gone
    }

    /// Gives back memory beyond `bytes_max`, for the next connection.
    pub(crate) fn recycle(&mut self, bytes_max: usize) {
        self.kept.clear();
        self.kept.shrink_to(bytes_max);
        *self = Self { kept: std::mem::take(&mut self.kept), ..Self::default() };
    }
}

fn fill(key: BodyKey, at: u64, count: u64, piece: &mut Piece) {
    // At most PIECE_BYTES_MAX, see the callers.
    let end = piece.len + count as usize;
    key.fill(at, &mut piece.bytes[piece.len..end]);
    piece.len = end;
}

/// A chunk's size line.
fn format_chunk_size(mut size: u64, line: &mut [u8; 18]) -> &[u8] {
    let mut start = 16;
    line[16..].copy_from_slice(b"\r\n");
    loop {
        start -= 1;
        line[start] = b"0123456789abcdef"[size as usize & 15];
        size >>= 4;
        if size == 0 {
            return &line[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Content, Envelope, Object, Shape};
    use humboldt_lab_wire::Chunked;
    use humboldt_lab_workload::{ObjectName, Workload};

    fn answer(size: u64, shape: Shape) -> Answer {
        let workload = Workload::builtin("fixed-1k").unwrap().unwrap();
        let name = ObjectName { world: 0, kind: 0, number: 1, size: Some(size) };
        let facts = workload.facts(1, &name);
        let object = Object { facts, version: facts.version(5), shape };
        Answer { envelope: Envelope::default(), content: Content::Object(object) }
    }

    /// Sends an answer with a head "head" through a kernel that takes `takes` bytes at a time.
    fn sent(answer: &Answer, takes: usize) -> (Vec<u8>, u64) {
        let (mut outbox, mut piece) = (Outbox::default(), Piece::new());
        let (mut out, mut body_bytes, mut allowed_bytes) = (Vec::new(), 0, 0);
        outbox.begin(answer);
        outbox.kept.extend_from_slice(b"head");
        while !outbox.is_done() {
            outbox.compose(allowed_bytes, &mut piece);
            if piece.bytes().is_empty() {
                allowed_bytes += 30_000;
            }
            let count = piece.bytes().len().min(takes);
            out.extend_from_slice(&piece.bytes()[..count]);
            body_bytes += outbox.commit(&piece, count);
        }
        assert!(out.starts_with(b"head"));
        (out.split_off(4), body_bytes)
    }

    #[test]
    fn what_the_kernel_takes_at_a_time_makes_no_difference() {
        for (size, shape) in [
            (0, Shape::Whole),
            (300, Shape::Whole),
            (150_000, Shape::Whole),
            (150_000, Shape::Part { first: 7, last: 99_999 }),
            (0, Shape::Chunked),
            (300, Shape::Chunked),
            (150_000, Shape::Chunked),
            (150_000, Shape::NotModified),
        ] {
            let answer = answer(size, shape);
            let (begin, end) = answer.body_range();
            let a_few = if size < 1000 { 1 } else { 997 };
            for takes in [a_few, 1000, 70_000, usize::MAX] {
                let (bytes, body_bytes) = sent(&answer, takes);
                let body = if shape == Shape::Chunked { without_chunks(&bytes) } else { bytes };
                assert_eq!(
                    (body.len() as u64, body_bytes),
                    (end - begin, end - begin),
                    "{shape:?} {takes}"
                );
                answer.body_key().unwrap().check(begin, &body).unwrap();
            }
        }
    }

    fn without_chunks(mut bytes: &[u8]) -> Vec<u8> {
        let (mut decoder, mut body) = (Chunked::new(), Vec::new());
        loop {
            let fed = decoder.feed(bytes).unwrap();
            body.extend_from_slice(&bytes[fed.data]);
            bytes = &bytes[fed.consumed..];
            if fed.done {
                assert!(bytes.is_empty());
                return body;
            }
        }
    }
}
