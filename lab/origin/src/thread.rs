//! One thread of the origin: its loop, and the state that its connections share.

use crate::answer::{Answer, Content, Object, Shape, Text};
use crate::connection::Fate;
use crate::outbox::Piece;
use crate::service::Service;
use crate::slab::Slab;
use humboldt_lab_record::OriginTally;
use humboldt_lab_wire::{Clock, HTTP_DATE_BYTES, Poller, Ready, Timers, http_date, thread_cpu_us};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// Bytes per read. Requests are far smaller; bodies of POSTs may fill it.
const READ_BYTES: usize = 64 * 1024;

/// Connections accepted from one listener before the others have their turn.
const ACCEPTS_MAX: usize = 64;

/// When the kernel has no more descriptors, it is asked again after this time, in µs.
const ACCEPT_RETRY_US: u64 = 50_000;

/// The two topmost bits of a token tell connections, listeners and idle timers apart.
const LISTENER: u64 = 1 << 63;
const IDLE: u64 = 1 << 62;

/// Commands from the other threads.
#[derive(Debug)]
pub(crate) enum Command {
    /// Asks for the counts since the last sample.
    Sample(SyncSender<OriginTally>),
    /// The end.
    Stop,
}

/// The state that all connections of a thread share.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) service: Service,
    pub(crate) tally: OriginTally,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) piece: Piece,
    /// When this round began, in µs.
    pub(crate) now_us: u64,
    /// The same moment as Unix time, in µs.
    pub(crate) unix_us: u64,
    /// The same moment in HTTP's form.
    pub(crate) date: Vec<u8>,
    clock: Clock,
    timers: Timers,
    luck: u64,
}

impl Tools {
    /// Another number each time, for decisions that no request makes. It is not random: its user
    /// mixes it.
    pub(crate) fn next_luck(&mut self) -> u64 {
        self.luck += 1;
        self.luck
    }

    /// Wakes the connection's answer.
    pub(crate) fn set_due_timer(&mut self, token: u64, due_us: u64) {
        self.timers.push(due_us, token);
    }

    /// Wakes the connection's patience. Each open connection has one such timer.
    pub(crate) fn set_idle_timer(&mut self, token: u64, due_us: u64) {
        self.timers.push(due_us, token | IDLE);
    }

    /// Counts an answer whose first bytes the kernel has.
    pub(crate) fn note_answer(&mut self, answer: &Answer, due_us: u64) {
        self.tally.lag.record_us(self.clock.now_us().saturating_sub(due_us));
        match answer.content {
            Content::Object(Object { shape: Shape::NotModified, .. }) => {
                self.tally.not_modified += 1
            }
            Content::Object(Object { shape: Shape::Part { .. }, .. }) => self.tally.partial += 1,
            Content::Object(_) | Content::Text(Text::Health) => {}
            Content::Text(_) => self.tally.refused += 1,
        }
    }

    fn look_at_clock(&mut self) {
        let before_s = self.unix_us / 1_000_000;
        self.now_us = self.clock.now_us();
        self.unix_us = self.clock.unix_us();
        let now_s = self.unix_us / 1_000_000;
        if now_s != before_s {
            self.date.clear();
            http_date(now_s, &mut self.date);
        }
    }
}

pub(crate) struct Thread {
    poller: Poller,
    commands: Receiver<Command>,
    listeners: Vec<TcpListener>,
    slab: Slab,
    tools: Tools,
    connections_max: usize,
    /// Whether the poller reports new connections.
    is_accepting: bool,
    /// When to try again, if the kernel had no descriptors.
    accept_again_us: Option<u64>,
    sampled_us: u64,
    sampled_cpu_us: u64,
}

impl Thread {
    pub(crate) fn new(
        index: usize,
        poller: Poller,
        commands: Receiver<Command>,
        service: Service,
        listeners: Vec<TcpListener>,
        connections_max: usize,
    ) -> io::Result<Self> {
        let mut tools = Tools {
            clock: Clock::start_with_offset(service.clock_offset_us),
            service,
            tally: OriginTally::default(),
            read_buffer: vec![0; READ_BYTES],
            piece: Piece::new(),
            now_us: 0,
            unix_us: 0,
            date: Vec::with_capacity(HTTP_DATE_BYTES),
            timers: Timers::default(),
            luck: (index as u64) << 48,
        };
        tools.look_at_clock();
        let mut thread = Self {
            poller,
            commands,
            listeners,
            slab: Slab::default(),
            tools,
            connections_max,
            is_accepting: false,
            accept_again_us: None,
            sampled_us: 0,
            sampled_cpu_us: 0,
        };
        thread.start_accepting()?;
        Ok(thread)
    }

    /// Serves until it is stopped; returns the counts since the last sample.
    pub(crate) fn run(mut self) -> OriginTally {
        let mut ready = Vec::new();
        loop {
            let timeout = self.time_to_next_due();
            if self.poller.wait_into(&mut ready, timeout).is_err() {
                // The kernel has no reason to refuse; if it does, there is nothing that this thread
                // could still do.
                return self.take_tally();
            }
            self.tools.look_at_clock();
            for event in &ready {
                match event.token {
                    Poller::WAKE => {
                        if self.obey() {
                            return self.take_tally();
                        }
                    }
                    token if token & LISTENER != 0 => self.accept((token & !LISTENER) as usize),
                    _ => self.serve(*event),
                }
            }
            self.tools.look_at_clock();
            self.do_what_is_due();
        }
    }

    fn time_to_next_due(&self) -> Option<Duration> {
        let due_us =
            [self.tools.timers.next_due(), self.accept_again_us].into_iter().flatten().min()?;
        Some(Duration::from_micros(due_us.saturating_sub(self.tools.clock.now_us())))
    }

    /// Follows all commands; whether to stop.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                // A caller that no longer listens has lost the sample.
                Command::Sample(answer) => drop(answer.try_send(self.take_tally())),
                Command::Stop => return true,
            }
        }
        false
    }

    fn take_tally(&mut self) -> OriginTally {
        let mut tally = std::mem::take(&mut self.tools.tally);
        let (now_us, cpu_us) = (self.tools.clock.now_us(), thread_cpu_us());
        tally.period_us = now_us - self.sampled_us;
        tally.cpu_us = cpu_us - self.sampled_cpu_us;
        tally.connections = self.slab.len() as u64;
        tally.threads = 1;
        (self.sampled_us, self.sampled_cpu_us) = (now_us, cpu_us);
        tally
    }

    fn serve(&mut self, ready: Ready) {
        let Some(connection) = self.slab.get(ready.token) else { return };
        if connection.on_ready(ready, &mut self.tools) == Fate::Close {
            self.close(ready.token);
        }
    }

    fn do_what_is_due(&mut self) {
        while let Some((due_us, key)) = self.tools.timers.pop_due(self.tools.now_us) {
            let token = key & !IDLE;
            let Some(connection) = self.slab.get(token) else { continue };
            let fate = if key & IDLE == 0 {
                connection.on_due(due_us, &mut self.tools)
            } else {
                connection.on_idle_timer(&mut self.tools)
            };
            if fate == Fate::Close {
                self.close(token);
            }
        }
        if self.accept_again_us.is_some_and(|due_us| due_us <= self.tools.now_us) {
            self.accept_again_us = None;
            self.accept_later_if_refused();
        }
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            if self.slab.len() >= self.connections_max {
                return self.stop_accepting();
            }
            let Some(listener) = self.listeners.get(index) else { return };
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    let (token, connection) = self.slab.open();
                    self.tools.tally.connects += 1;
                    let is_watched = self.poller.add_stream(&fd, token).is_ok();
                    let fate = connection.begin(fd, token, &mut self.tools);
                    if !is_watched || fate == Fate::Close {
                        self.close(token);
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.stop_accepting();
                    self.accept_again_us = Some(self.tools.now_us + ACCEPT_RETRY_US);
                    return;
                }
            }
        }
    }

    fn close(&mut self, token: u64) {
        self.slab.close(token);
        if !self.is_accepting && self.accept_again_us.is_none() {
            self.accept_later_if_refused();
        }
    }

    fn accept_later_if_refused(&mut self) {
        if self.start_accepting().is_err() {
            self.accept_again_us = Some(self.tools.now_us + ACCEPT_RETRY_US);
        }
    }

    fn start_accepting(&mut self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            match self.poller.add_listener(listener, LISTENER | index as u64) {
                // From an attempt that failed half-way.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => outcome?,
            }
        }
        self.is_accepting = true;
        Ok(())
    }

    /// Leaves connections in the kernel's queue, without being told of them in every round.
    fn stop_accepting(&mut self) {
        for listener in &self.listeners {
            // If it is not watched, that is the wanted state.
            let _ = self.poller.remove(listener);
        }
        self.is_accepting = false;
    }
}
