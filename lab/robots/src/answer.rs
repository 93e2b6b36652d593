//! Reads one answer in whatever pieces it comes, and verifies every byte on the way. Knows nothing
//! of sockets.

use crate::expected::{Asked, KnownBody, Verdict, check_tunnel, fault, method, text};
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_wire::{BodyLength, Chunked, ResponseHead, response_head};
use humboldt_lab_workload::{Ask, Facts};

/// Interim answers (1xx) before the real one. More is a server that talks to itself.
const INTERIM_MAX: u8 = 8;

/// Bytes shown of both sides of a difference.
const EVIDENCE_BYTES: usize = 8;

/// One complete, right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The origin saw this very request.
    pub(crate) from_origin: bool,
    /// It was a hit that the plan excuses.
    pub(crate) excused: bool,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
    /// The server lets the connection be used again.
    pub(crate) keep_alive: bool,
}

/// The effect of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More are to come.
    More,
    /// The answer is complete.
    Done(Answer),
}

/// An answer under way.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    asked: Asked,
    /// The beginning of a head that has not arrived whole.
    head: Vec<u8>,
    interim: u8,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Head,
    Body(Body),
}

#[derive(Debug)]
struct Body {
    answer: Answer,
    known: Option<KnownBody>,
    framing: Framing,
}

#[derive(Debug)]
enum Framing {
    Length { left_bytes: u64 },
    Chunked(Chunked),
    UntilClose,
}

impl Default for AnswerReader {
    fn default() -> Self {
        let asked = Asked::Foreign { hit_mark: None };
        Self { asked, head: Vec::new(), interim: 0, state: State::Idle }
    }
}

impl AnswerReader {
    /// The next bytes are the answer to this.
    pub(crate) fn begin(&mut self, asked: Asked) {
        self.asked = asked;
        self.head.clear();
        self.interim = 0;
        self.state = State::Head;
    }

    /// Whether no byte of the answer has arrived.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.state, State::Head) && self.head.is_empty() && self.interim == 0
    }

    /// Whether the answer is one to CONNECT.
    pub(crate) fn is_for_tunnel(&self) -> bool {
        matches!(self.asked, Asked::Tunnel { .. })
    }

    /// Whether a user who gives up halfway would do so now.
    pub(crate) fn is_past_half(&self) -> bool {
        match &self.state {
            State::Body(Body { answer, known: Some(known), .. }) => {
                answer.body_bytes >= known.length_bytes / 2
            }
            State::Body(_) => true,
            State::Idle | State::Head => false,
        }
    }

    /// The progress of the answer, in words for a fault.
    pub(crate) fn progress(&self) -> String {
        match &self.state {
            State::Body(body) => format!("{} bytes of the body", body.answer.body_bytes),
            State::Head if self.head.is_empty() => "no answer".to_string(),
            State::Idle | State::Head => format!("{} bytes of the head", self.head.len()),
        }
    }

    /// Goes on with the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8], unix_us: impl Fn() -> u64) -> Result<Step, Fault> {
        let mut scratch = std::mem::take(&mut self.head);
        if scratch.is_empty() {
            return self.feed_whole(bytes, scratch, &unix_us);
        }
        // A head came in pieces, which is rare: put them together, and go on from there.
        scratch.extend_from_slice(bytes);
        self.feed_whole(&scratch, Vec::new(), &unix_us)
    }

    /// The peer has closed. A body that ends with the connection is complete now; any other is not.
    /// `is_cut`: TLS has not ended, so what came may be a part only.
    pub(crate) fn end(&mut self, is_cut: bool) -> Result<Answer, Fault> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let State::Body(body) = state else {
            let got = format!("end of the connection after {} bytes of the head", self.head.len());
            return Err(fault(FaultKind::Disconnected, None, "an answer".into(), got));
        };
        let have = body.answer.body_bytes;
        let (complete, expected) = match (&body.framing, &body.known) {
            (Framing::UntilClose, _) if is_cut => {
                (false, "the end of TLS (close_notify)".to_owned())
            }
            (Framing::Length { left_bytes }, _) => (false, format!("{} bytes", have + left_bytes)),
            (_, Some(known)) => {
                (have == known.length_bytes, format!("{} bytes", known.length_bytes))
            }
            (Framing::Chunked(_), None) => (false, "the last chunk".into()),
            (Framing::UntilClose, None) => (true, String::new()),
        };
        // All bytes but no last chunk: the client could not know that it is complete.
        if complete && matches!(body.framing, Framing::UntilClose) {
            return Ok(Answer { keep_alive: false, ..body.answer });
        }
        Err(fault(
            FaultKind::Truncated,
            Some(have),
            expected,
            format!("end of the connection after {have}"),
        ))
    }

    /// Unexpected bytes, after a complete answer. Some servers say why they close; that is no
    /// fault.
    pub(crate) fn surplus(&self, bytes: &[u8]) -> Option<Fault> {
        let is_message = bytes.starts_with(&b"HTTP/1."[..bytes.len().min(7)]);
        (!is_message && !matches!(self.asked, Asked::Foreign { .. })).then(|| too_long(None, bytes))
    }

    fn feed_whole(
        &mut self,
        bytes: &[u8],
        mut scratch: Vec<u8>,
        unix_us: &impl Fn() -> u64,
    ) -> Result<Step, Fault> {
        let mut rest = bytes;
        while matches!(self.state, State::Head) {
            let Some(head) = response_head(rest).map_err(|error| malformed(rest, &error))? else {
                scratch.clear();
                scratch.extend_from_slice(rest);
                self.head = scratch;
                return Ok(Step::More);
            };
            rest = &rest[head.len_bytes()..];
            if (100..200).contains(&head.status()) && head.status() != 101 {
                self.count_interim(&head)?;
                continue;
            }
            let body = self.check_head(&head, rest, &mut scratch, unix_us())?;
            self.state = State::Body(body);
        }
        // Keeps the scratch space for the next answer's dates, but empty: it is where the head's
        // pieces are.
        scratch.clear();
        self.head = scratch;
        self.feed_body(rest)
    }

    fn count_interim(&mut self, head: &ResponseHead<'_>) -> Result<(), Fault> {
        self.interim += 1;
        if self.interim > INTERIM_MAX {
            let got = format!("{} interim answers, the last {}", self.interim, head.status());
            return Err(fault(FaultKind::WrongStatus, None, "a final answer".into(), got));
        }
        Ok(())
    }

    fn check_head(
        &self,
        head: &ResponseHead<'_>,
        rest: &[u8],
        scratch: &mut Vec<u8>,
        unix_us: u64,
    ) -> Result<Body, Fault> {
        let (verdict, known, method) = match &self.asked {
            Asked::Object(object) => {
                let (verdict, known) = object.check_head(head, rest, scratch, unix_us)?;
                (verdict, known, method(&object.ask.kind))
            }
            Asked::Tunnel { allowed } => {
                check_tunnel(*allowed, head, rest)?;
                (Verdict::default(), None, &b"CONNECT"[..])
            }
            Asked::Foreign { hit_mark } => {
                let from_origin = hit_mark.is_some_and(|mark| !mark.is_in(head));
                (Verdict { from_origin, excused: false }, None, &b"GET"[..])
            }
        };
        let length = head.body_length(method);
        let framing = match length {
            BodyLength::None => Framing::Length { left_bytes: 0 },
            BodyLength::Length(left_bytes) => Framing::Length { left_bytes },
            BodyLength::Chunked => Framing::Chunked(Chunked::new()),
            BodyLength::UntilClose => Framing::UntilClose,
        };
        let answer = Answer {
            status: head.status(),
            from_origin: verdict.from_origin,
            excused: verdict.excused,
            body_bytes: 0,
            keep_alive: head.keep_alive() && length != BodyLength::UntilClose,
        };
        Ok(Body { answer, known, framing })
    }

    fn feed_body(&mut self, bytes: &[u8]) -> Result<Step, Fault> {
        let State::Body(body) = &mut self.state else { return Ok(Step::More) };
        let used = body.feed(bytes)?;
        let Some(used) = used else { return Ok(Step::More) };
        let answer = body.answer;
        self.state = State::Idle;
        if used < bytes.len() {
            return Err(too_long(Some(answer.body_bytes), &bytes[used..]));
        }
        Ok(Step::Done(answer))
    }

    /// The facts about the last requested object.
    pub(crate) fn facts(&self) -> Option<Facts> {
        match &self.asked {
            Asked::Object(object) => Some(object.facts),
            Asked::Tunnel { .. } | Asked::Foreign { .. } => None,
        }
    }

    /// The last requested object.
    pub(crate) fn asked_object(&self) -> Option<Ask> {
        match &self.asked {
            Asked::Object(object) => Some(object.ask),
            Asked::Tunnel { .. } | Asked::Foreign { .. } => None,
        }
    }
}

impl Body {
    /// Takes bytes; gives how many belonged to the body if it is complete with them.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Self { answer, known, framing } = self;
        match framing {
            Framing::Length { left_bytes } => {
                let taken =
                    usize::try_from(*left_bytes).map_or(bytes.len(), |left| left.min(bytes.len()));
                verify(known, answer, &bytes[..taken])?;
                *left_bytes -= taken as u64;
                Ok((*left_bytes == 0).then_some(taken))
            }
            Framing::UntilClose => verify(known, answer, bytes).map(|()| None),
            Framing::Chunked(chunked) => {
                let mut used = 0;
                while used < bytes.len() {
                    let fed = chunked
                        .feed(&bytes[used..])
                        .map_err(|error| malformed(&bytes[used..], &error))?;
                    verify(known, answer, &bytes[used..][fed.data])?;
                    used += fed.consumed;
                    if fed.done {
                        return known_is_complete(known, answer).map(|()| Some(used));
                    }
                }
                Ok(None)
            }
        }
    }
}

fn known_is_complete(known: &Option<KnownBody>, answer: &Answer) -> Result<(), Fault> {
    match known {
        Some(known) if answer.body_bytes < known.length_bytes => Err(fault(
            FaultKind::Truncated,
            Some(answer.body_bytes),
            format!("{} bytes", known.length_bytes),
            format!("the last chunk after {}", answer.body_bytes),
        )),
        _ => Ok(()),
    }
}

/// Compares the next bytes of a body, and counts them.
fn verify(known: &Option<KnownBody>, answer: &mut Answer, bytes: &[u8]) -> Result<(), Fault> {
    let position = answer.body_bytes;
    answer.body_bytes += bytes.len() as u64;
    let Some(known) = known else { return Ok(()) };
    let room = known.length_bytes.saturating_sub(position);
    let inside = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
    let begin = known.first_byte + position;
    if let Err(mismatch) = known.key.check(begin, &bytes[..inside]) {
        let at = usize::try_from(mismatch.offset - begin).unwrap_or(0);
        let got = &bytes[at..inside.min(at + EVIDENCE_BYTES)];
        let mut expected = [0; EVIDENCE_BYTES];
        known.key.fill(mismatch.offset, &mut expected[..got.len()]);
        let expected = hex(&expected[..got.len()]);
        return Err(fault(FaultKind::WrongByte, Some(mismatch.offset), expected, hex(got)));
    }
    if inside < bytes.len() {
        return Err(too_long(Some(known.length_bytes), &bytes[inside..]));
    }
    Ok(())
}

fn too_long(offset: Option<u64>, surplus: &[u8]) -> Fault {
    let got = hex(&surplus[..surplus.len().min(EVIDENCE_BYTES)]);
    fault(FaultKind::TooLong, offset, "the end of the answer".into(), got)
}

fn malformed(bytes: &[u8], error: &dyn std::fmt::Display) -> Fault {
    fault(FaultKind::Malformed, None, format!("HTTP/1: {error}"), text(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::AskedObject;
    use humboldt_lab_wire::http_date;
    use humboldt_lab_workload::{AskKind, ObjectName, Workload};

    const NOW_US: u64 = 1_800_000_000_000_000;
    const ID: u64 = 0x0123_4567_89ab_cdef;

    fn asked(kind: AskKind) -> AskedObject {
        let workload = Workload::builtin("fixed-1k").unwrap().unwrap();
        let name = ObjectName { world: 0, kind: 0, number: 3, size: None };
        let ask = Ask {
            name,
            kind,
            after_us: 0,
            id: ID,
            repeat: false,
            abort: false,
            robot_luck: 0,
            server_luck: 0,
        };
        let facts = workload.facts(1, &name);
        AskedObject {
            ask,
            facts,
            tunnelled: false,
            sent_unix_us: NOW_US,
            excuse_reload_hits: false,
        }
    }

    fn body(facts: &Facts) -> Vec<u8> {
        let mut body = vec![0; facts.size_bytes as usize];
        facts.body(facts.version_at(NOW_US).number).fill(0, &mut body);
        body
    }

    /// Status line, the fields that every answer has, and these.
    fn head(facts: &Facts, status: &str, fields: &str) -> Vec<u8> {
        let version = facts.version_at(NOW_US);
        let mut head =
            format!("HTTP/1.1 {status}\r\n{fields}Lab-Request: {ID:016x}\r\nETag: ").into_bytes();
        Workload::etag(facts, version.number, &mut head);
        head.extend_from_slice(b"\r\nLast-Modified: ");
        http_date(version.modified_s, &mut head);
        head.extend_from_slice(b"\r\nExpires: ");
        http_date(version.expires_s, &mut head);
        head.extend_from_slice(b"\r\n\r\n");
        head
    }

    fn read(asked: AskedObject, pieces: &[&[u8]]) -> Result<Step, Fault> {
        let mut reader = AnswerReader::default();
        reader.begin(Asked::Object(asked));
        let mut last = Ok(Step::More);
        for piece in pieces {
            last = reader.feed(piece, || NOW_US);
            if last != Ok(Step::More) {
                break;
            }
        }
        last
    }

    fn whole_answers(facts: &Facts) -> [Vec<u8>; 3] {
        let body = body(facts);
        let mut plain = head(facts, "200 OK", "Content-Length: 1024\r\n");
        plain.extend_from_slice(&body);
        let mut interim = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
        interim.extend_from_slice(&plain);
        let mut chunked = head(facts, "200 OK", "Transfer-Encoding: chunked\r\n");
        for chunk in body.chunks(300) {
            chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        [plain, interim, chunked]
    }

    #[test]
    fn it_makes_no_difference_in_which_pieces_an_answer_comes() {
        let object = asked(AskKind::Plain);
        for bytes in whole_answers(&object.facts) {
            for at in 0..bytes.len() {
                let (one, two) = bytes.split_at(at);
                let Ok(Step::Done(answer)) = read(object, &[one, two]) else {
                    panic!("split at {at}")
                };
                assert_eq!(
                    (answer.status, answer.body_bytes, answer.from_origin),
                    (200, 1024, true)
                );
            }
            let single: Vec<_> = bytes.chunks(1).collect();
            assert!(matches!(read(object, &single), Ok(Step::Done(_))));
        }
    }

    #[test]
    fn every_flipped_byte_is_found_at_its_place() {
        let object = asked(AskKind::Plain);
        let [plain, ..] = whole_answers(&object.facts);
        let begin = plain.len() - 1024;
        for at in 0..1024 {
            let mut wrong = plain.clone();
            wrong[begin + at] ^= 1;
            let (one, two) = wrong.split_at(begin + at / 2);
            let fault = read(object, &[one, two]).unwrap_err();
            assert_eq!((fault.kind, fault.offset), (FaultKind::WrongByte, Some(at as u64)));
        }
    }

    #[test]
    fn parts_and_answers_without_body_are_checked_too() {
        let part = asked(AskKind::Range { first: 100, last: 149 });
        let fields = "Content-Length: 50\r\nContent-Range: bytes 100-149/1024\r\n";
        let mut bytes = head(&part.facts, "206 Partial Content", fields);
        bytes.extend_from_slice(&body(&part.facts)[100..150]);
        assert!(matches!(read(part, &[&bytes]), Ok(Step::Done(Answer { body_bytes: 50, .. }))));
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(read(part, &[&bytes]).unwrap_err().offset, Some(149));
        let fields = "Content-Length: 50\r\nContent-Range: bytes 100-149/1025\r\n";
        let bytes = head(&part.facts, "206 Partial Content", fields);
        assert_eq!(read(part, &[&bytes]).unwrap_err().kind, FaultKind::WrongHead);

        let unchanged = asked(AskKind::Ims304);
        let bytes = head(&unchanged.facts, "304 Not Modified", "");
        assert!(matches!(read(unchanged, &[&bytes]), Ok(Step::Done(Answer { status: 304, .. }))));
        assert_eq!(
            read(asked(AskKind::Ims200), &[&bytes]).unwrap_err().kind,
            FaultKind::WrongStatus
        );

        let only_head = asked(AskKind::Head);
        let bytes = head(&only_head.facts, "200 OK", "Content-Length: 1024\r\n");
        assert!(matches!(read(only_head, &[&bytes]), Ok(Step::Done(Answer { body_bytes: 0, .. }))));
        let talkative = [bytes, b"x".to_vec()].concat();
        assert_eq!(read(only_head, &[&talkative]).unwrap_err().kind, FaultKind::TooLong);
    }

    #[test]
    fn a_304_that_a_cache_made_itself_is_a_hit() {
        let object = asked(AskKind::Ims304);
        let bytes = head(&object.facts, "304 Not Modified", "");
        let id = format!("Lab-Request: {ID:016x}\r\n");
        let own = String::from_utf8(bytes).unwrap().replace(&id, "");
        let Ok(Step::Done(answer)) = read(object, &[own.as_bytes()]) else { panic!("no answer") };
        assert!(!answer.from_origin);
        // An object that may not be stored has no 304 of a cache: this one passed the origin's on
        // without the number.
        let mut private = object;
        private.facts.cachable = false;
        let Ok(Step::Done(answer)) = read(private, &[own.as_bytes()]) else { panic!("no answer") };
        assert!(answer.from_origin);
    }

    #[test]
    fn a_version_is_right_until_it_ends_and_a_little_longer() {
        let mut object = asked(AskKind::Plain);
        let [plain, ..] = whole_answers(&object.facts);
        let expires_s = object.facts.version_at(NOW_US).expires_s;
        object.sent_unix_us = (expires_s + 3) * 1_000_000;
        assert!(read(object, &[&plain]).is_ok());
        object.sent_unix_us += 1_000_000;
        let fault = read(object, &[&plain]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stale);
        assert!(fault.got.ends_with("which ended 4 s before the request"), "{fault:?}");
    }

    #[test]
    fn an_answer_until_close_is_complete_only_with_its_last_byte() {
        let object = asked(AskKind::Plain);
        let mut bytes = head(&object.facts, "200 OK", "");
        bytes.extend_from_slice(&body(&object.facts));
        for (missing, complete) in [(0, true), (1, false), (1024, false)] {
            let mut reader = AnswerReader::default();
            reader.begin(Asked::Object(object));
            assert_eq!(reader.feed(&bytes[..bytes.len() - missing], || NOW_US), Ok(Step::More));
            let end = reader.end(false);
            assert_eq!(
                end.is_ok_and(|answer| !answer.keep_alive),
                complete,
                "{missing} bytes missing"
            );
        }
    }

    #[test]
    fn what_ends_with_the_connection_ends_with_tls() {
        for (head, is_whole) in [("", true), ("Content-Length: 9\r\n", false)] {
            for is_cut in [false, true] {
                let mut reader = AnswerReader::default();
                reader.begin(Asked::Foreign { hit_mark: None });
                let bytes = format!("HTTP/1.1 200 Yes\r\n{head}\r\nhalf");
                assert_eq!(reader.feed(bytes.as_bytes(), || NOW_US), Ok(Step::More));
                let end = reader.end(is_cut);
                assert_eq!(end.is_ok(), is_whole && !is_cut, "{end:?}");
                if is_whole && is_cut {
                    let fault = end.unwrap_err();
                    assert_eq!(fault.kind, FaultKind::Truncated);
                    assert!(fault.expected.contains("close_notify"), "{fault:?}");
                }
            }
        }
    }

    #[test]
    fn tunnels_are_allowed_or_denied() {
        let answer = |allowed, bytes: &[u8]| {
            let mut reader = AnswerReader::default();
            reader.begin(Asked::Tunnel { allowed });
            reader.feed(bytes, || NOW_US)
        };
        let (open, shut) =
            (b"HTTP/1.1 200 Fine\r\n\r\n", b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno");
        assert!(matches!(answer(true, open), Ok(Step::Done(_))));
        assert!(matches!(answer(false, shut), Ok(Step::Done(_))));
        assert_eq!(answer(true, shut).unwrap_err().got, "403 no");
        assert_eq!(answer(false, open).unwrap_err().kind, FaultKind::WrongStatus);
    }
}
