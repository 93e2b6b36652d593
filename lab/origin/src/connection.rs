//! One connection: head → (body) → wait → send → head → …
//!
//! Every event and timer runs [`Connection::go_on`], which takes steps until it must wait for the
//! socket or for a moment. The socket is read only while a request is expected; bytes that a client
//! sends ahead stay in the kernel.

use crate::answer::{Answer, Text};
use crate::outbox::Outbox;
use crate::request::Request;
use crate::service::{Moment, Schedule};
use crate::thread::Tools;
use humboldt_lab_tls::{Channel, ChannelError, Got, Handshake};
use humboldt_lab_wire::{BodyLength, Chunked, Ready, request_head};
use rustix::fd::OwnedFd;

/// Longest body of a request. Workloads have far shorter ones.
const REQUEST_BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// After this many bytes of one answer the other connections have their turn.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// How long an answer may make no progress because the client does not read. 60 s, as in nginx.
const STALL_US: u64 = 60_000_000;

/// How long a new connection may be without the whole head of a request. The idle time of the
/// workload is for connections that were used, and may be short: a cache that is late with its
/// first request would find its new connection closed. 60 s, as in nginx.
const FIRST_REQUEST_US: u64 = 60_000_000;

/// Idle connections are looked at no more often than this.
const SOON_US: u64 = 1000;

/// Bytes that are read from a client that has its last answer and goes on sending, so that a reset
/// does not take the answer from it.
const DRAIN_BYTES_MAX: usize = 1024 * 1024;

/// Buffers that grew beyond this are given back with their connection.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// The connection itself; closed if it has no channel.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    channel: Option<Channel>,
    token: u64,
    state: State,
    /// Bytes of requests that were not understood yet: at most a head and one read.
    input: Vec<u8>,
    outbox: Outbox,
    /// The socket may have bytes to read.
    has_unread: bool,
    /// The peer has sent its end, so even a short read is not the last.
    is_half_closed: bool,
    uses_left: u32,
    is_first: bool,
    /// When something last happened, in µs.
    active_us: u64,
    /// The moment for which a timer is set, if the answer waits for one.
    due_us: Option<u64>,
}

#[derive(Debug, Default)]
enum State {
    /// A request may begin, or is not complete.
    #[default]
    Head,
    /// The body of a request is read and forgotten.
    Body(Incoming, Answer, Schedule),
    /// An answer is to be sent, now or later.
    Send(Answer, Schedule, Progress),
    /// The last answer is sent; then our end; further bytes are discarded.
    Drain {
        /// This many so far.
        bytes: usize,
        /// Our end is with the kernel.
        is_shut: bool,
    },
}

/// The rest of a request's body.
#[derive(Debug)]
enum Incoming {
    Length(u64),
    Chunked(Chunked, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing is sent yet, the head is not even written.
    NotBegun,
    /// Some is sent.
    Begun,
    /// The kernel takes no more.
    Blocked,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Again,
    Wait,
    Close,
}

/// The fate of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    Close,
}

impl Connection {
    /// Begins with a new socket in this place.
    pub(crate) fn begin(&mut self, fd: OwnedFd, token: u64, tools: &mut Tools) -> Fate {
        let luck = tools.next_luck();
        let mut channel = Channel::plain(fd);
        let tls = tools.service.tls.as_ref();
        let begun = tls.map_or(Ok(()), |tls| channel.begin_server(tls));
        self.channel = Some(channel);
        self.token = token;
        self.is_first = true;
        self.uses_left = tools.service.uses(luck);
        self.active_us = tools.now_us;
        tools.set_idle_timer(token, tools.now_us + tools.service.idle_us);
        if begun.is_ok() { Fate::Open } else { Fate::Close }
    }

    /// Closes it, and keeps memory that the next one can use.
    pub(crate) fn recycle(&mut self) {
        let (mut input, mut outbox) =
            (std::mem::take(&mut self.input), std::mem::take(&mut self.outbox));
        input.clear();
        input.shrink_to(KEPT_BYTES_MAX);
        outbox.recycle(KEPT_BYTES_MAX);
        *self = Self { input, outbox, ..Self::default() };
    }

    /// The socket is ready for something.
    pub(crate) fn on_ready(&mut self, ready: Ready, tools: &mut Tools) -> Fate {
        self.has_unread |= ready.readable;
        self.is_half_closed |= ready.closed;
        if ready.writable {
            let flushed = self.channel.as_mut().map(Channel::flush);
            if flushed.is_some_and(|flushed| flushed.is_err()) {
                return Fate::Close;
            }
            if let State::Send(_, _, progress @ Progress::Blocked) = &mut self.state {
                *progress = Progress::Begun;
            }
        }
        self.go_on(tools)
    }

    /// The moment of an answer, or of its next part, has come.
    pub(crate) fn on_due(&mut self, due_us: u64, tools: &mut Tools) -> Fate {
        if self.due_us.take_if(|wanted| *wanted == due_us).is_none() {
            return Fate::Open;
        }
        self.go_on(tools)
    }

    /// Nothing may have happened for too long: closes, or tells when to ask again.
    pub(crate) fn on_idle_timer(&mut self, tools: &mut Tools) -> Fate {
        if self.idle_end_us(tools) <= tools.now_us {
            // What has come since the last look counts too.
            if matches!(self.state, State::Head | State::Body(..)) {
                self.has_unread = true;
                if self.go_on(tools) == Fate::Close {
                    return Fate::Close;
                }
            }
            if self.idle_end_us(tools) <= tools.now_us {
                return Fate::Close;
            }
        }
        // By then the first request may have come, and the usual limit holds.
        let next_us = self.idle_end_us(tools).min(tools.now_us + tools.service.idle_us);
        tools.set_idle_timer(self.token, next_us.max(tools.now_us + SOON_US));
        Fate::Open
    }

    /// The moment at which nothing has happened for too long.
    fn idle_end_us(&mut self, tools: &Tools) -> u64 {
        let limit_us = match &self.state {
            State::Head if self.is_first => FIRST_REQUEST_US.max(tools.service.idle_us),
            State::Head | State::Body(..) | State::Drain { .. } => tools.service.idle_us,
            State::Send(_, _, Progress::Blocked) => STALL_US,
            // It waits for its own moment, which comes by itself.
            State::Send(..) => {
                self.active_us = tools.now_us;
                tools.service.idle_us.max(SOON_US)
            }
        };
        self.active_us.saturating_add(limit_us)
    }

    fn go_on(&mut self, tools: &mut Tools) -> Fate {
        loop {
            let step = match &self.state {
                State::Head => self.take_head(tools),
                State::Body(..) => self.take_body(tools),
                State::Send(..) => self.send(tools),
                State::Drain { .. } => self.drain(tools),
            };
            match step {
                Step::Again => {}
                Step::Wait => return Fate::Open,
                Step::Close => return Fate::Close,
            }
        }
    }

    fn take_head(&mut self, tools: &mut Tools) -> Step {
        if self.input.is_empty() {
            return self.receive(tools);
        }
        let head = match request_head(&self.input) {
            Ok(Some(head)) => head,
            Ok(None) => return self.receive(tools),
            Err(_) => return self.refuse(Text::BadRequest, tools),
        };
        tools.tally.requests += 1;
        let request = Request::read(&head);
        let moment = Moment {
            now_us: tools.now_us,
            unix_us: tools.unix_us,
            is_first: std::mem::take(&mut self.is_first),
            luck: tools.next_luck(),
        };
        let (mut answer, schedule) = tools.service.answer(&head, &request, moment);
        self.uses_left = self.uses_left.saturating_sub(1);
        answer.envelope.close |= self.uses_left == 0;
        let (body, continues, used) =
            (head.body_length(), request.expects_continue, head.len_bytes());
        self.input.drain(..used);
        let incoming = match body {
            BodyLength::Length(bytes) if bytes > REQUEST_BODY_BYTES_MAX => {
                return self.refuse(Text::TooLarge, tools);
            }
            BodyLength::Length(bytes) if bytes > 0 => Incoming::Length(bytes),
            BodyLength::Chunked => Incoming::Chunked(Chunked::new(), 0),
            _ => {
                self.state = State::Send(answer, schedule, Progress::NotBegun);
                return Step::Again;
            }
        };
        self.state = State::Body(incoming, answer, schedule);
        if continues && self.input.is_empty() { self.invite_body() } else { Step::Again }
    }

    /// Tells a client that waits for it to send its body.
    fn invite_body(&mut self) -> Step {
        const INVITATION: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let Some(channel) = &mut self.channel else { return Step::Close };
        // A client without room for even this does not read its answers.
        match channel.send(INVITATION) {
            Ok(sent) if sent == INVITATION.len() => Step::Again,
            _ => Step::Close,
        }
    }

    fn take_body(&mut self, tools: &mut Tools) -> Step {
        let State::Body(incoming, ..) = &mut self.state else { return Step::Close };
        let done = match incoming.take(&mut self.input) {
            Ok(done) => done,
            Err(text) => return self.refuse(text, tools),
        };
        if !done {
            return self.receive(tools);
        }
        let State::Body(_, answer, mut schedule) = std::mem::take(&mut self.state) else {
            return Step::Close;
        };
        // A server begins to think when it has the whole request.
        schedule.begin_later(tools.now_us);
        self.state = State::Send(answer, schedule, Progress::NotBegun);
        Step::Again
    }

    /// Reads once. After a short read the kernel will tell when there is more.
    fn receive(&mut self, tools: &mut Tools) -> Step {
        let Some(channel) = self.channel.as_mut().filter(|_| self.has_unread) else {
            return Step::Wait;
        };
        let asked = tools.read_buffer.len();
        let received = channel.receive(&mut tools.read_buffer);
        if let Some(handshake) = channel.take_handshake() {
            tools.tally.handshakes.add(handshake == Handshake::Resumed);
        }
        match received {
            Ok(Got::End | Got::Cut) => Step::Close,
            Ok(Got::Bytes(got)) => {
                self.has_unread = self.is_half_closed || !channel.has_drained(got, asked);
                self.active_us = tools.now_us;
                self.input.extend_from_slice(&tools.read_buffer[..got]);
                Step::Again
            }
            Ok(Got::NothingYet) => {
                self.has_unread = false;
                Step::Wait
            }
            Err(error) => {
                let failed = matches!(error, ChannelError::Handshake(_));
                tools.tally.handshakes.failed += u64::from(failed);
                Step::Close
            }
        }
    }

    fn refuse(&mut self, text: Text, tools: &mut Tools) -> Step {
        self.input.clear();
        let schedule = Schedule::at_once(tools.now_us);
        self.state = State::Send(Answer::last(text), schedule, Progress::NotBegun);
        Step::Again
    }

    fn send(&mut self, tools: &mut Tools) -> Step {
        let State::Send(answer, schedule, progress) = &mut self.state else { return Step::Close };
        let Some(channel) = &mut self.channel else { return Step::Close };
        let mut turn_bytes = 0;
        while *progress != Progress::Blocked {
            if schedule.due_us > tools.now_us || turn_bytes >= TURN_BYTES_MAX {
                // 1 µs later at the earliest, so that a turn ends even if the client is as fast as
                // we are.
                let due_us = schedule.due_us.max(tools.now_us + 1);
                return self.wait_until(due_us, tools);
            }
            if *progress == Progress::NotBegun {
                self.outbox.begin(answer);
                answer.write_head(&tools.service.workload, &tools.date, &mut self.outbox.kept);
            }
            self.outbox.compose(schedule.allowed_bytes, &mut tools.piece);
            if tools.piece.bytes().is_empty() {
                tools.service.next_step(schedule);
                continue;
            }
            let Ok(sent) = channel.send(tools.piece.bytes()) else { return Step::Close };
            if *progress == Progress::NotBegun {
                tools.note_answer(answer, schedule.due_us);
            }
            *progress = if sent == 0 { Progress::Blocked } else { Progress::Begun };
            tools.tally.body_bytes += self.outbox.commit(&tools.piece, sent);
            turn_bytes += sent;
            self.active_us = tools.now_us;
            if self.outbox.is_done() {
                return self.finish();
            }
        }
        Step::Wait
    }

    fn wait_until(&mut self, due_us: u64, tools: &mut Tools) -> Step {
        if self.due_us != Some(due_us) {
            self.due_us = Some(due_us);
            tools.set_due_timer(self.token, due_us);
        }
        Step::Wait
    }

    fn finish(&mut self) -> Step {
        let State::Send(answer, ..) = std::mem::take(&mut self.state) else { return Step::Close };
        if !answer.envelope.close {
            return Step::Again;
        }
        // Not closed at once: further bytes from the client would make the kernel reset the
        // connection, and drop bytes that it has not delivered yet.
        self.state = State::Drain { bytes: 0, is_shut: false };
        Step::Again
    }

    fn drain(&mut self, tools: &mut Tools) -> Step {
        let State::Drain { bytes, is_shut } = &mut self.state else { return Step::Close };
        if !*is_shut {
            let Some(Ok(done)) = self.channel.as_mut().map(Channel::shut) else {
                return Step::Close;
            };
            *is_shut = done;
        }
        *bytes += self.input.len();
        self.input.clear();
        if *bytes > DRAIN_BYTES_MAX { Step::Close } else { self.receive(tools) }
    }
}

impl Incoming {
    /// Takes the bytes of the body from the input; returns whether it is complete.
    fn take(&mut self, input: &mut Vec<u8>) -> Result<bool, Text> {
        match self {
            Self::Length(left_bytes) => {
                let there = u64::try_from(input.len()).unwrap_or(u64::MAX);
                // Not more than the input's length, so it fits.
                let taken = there.min(*left_bytes) as usize;
                input.drain(..taken);
                *left_bytes -= taken as u64;
                Ok(*left_bytes == 0)
            }
            Self::Chunked(decoder, body_bytes) => {
                let (mut used, mut done) = (0, false);
                while used < input.len() && !done {
                    let fed = decoder.feed(&input[used..]).map_err(|_| Text::BadRequest)?;
                    used += fed.consumed;
                    done = fed.done;
                    *body_bytes += fed.data.len() as u64;
                    if *body_bytes > REQUEST_BODY_BYTES_MAX {
                        return Err(Text::TooLarge);
                    }
                }
                input.drain(..used);
                Ok(done)
            }
        }
    }
}
