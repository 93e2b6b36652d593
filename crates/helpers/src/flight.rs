//! The questions that one process has got, and their channels.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use crate::state::Job;

/// A question that was sent.
pub(crate) struct Sent {
    pub(crate) channel: u64,
    pub(crate) job: Job,
    pub(crate) at: Instant,
}

/// The question that a line answers.
pub(crate) enum Answered {
    Question(Sent),
    /// One that was given up because it took too long.
    Late,
    /// None.
    Nothing,
}

/// The questions in the order of their channels.
pub(crate) struct Flight {
    has_channels: bool,
    sent: VecDeque<Sent>,
    /// Channels of questions that were given up. Their number is below that of the channels.
    late: HashSet<u64>,
    last_channel: u64,
}

impl Flight {
    pub(crate) fn new(has_channels: bool) -> Self {
        Self { has_channels, sent: VecDeque::new(), late: HashSet::new(), last_channel: 0 }
    }

    /// Appends the line of a question to `out`.
    pub(crate) fn send(&mut self, job: Job, out: &mut Vec<u8>, at: Instant) {
        self.last_channel += 1;
        if self.has_channels {
            out.extend_from_slice(self.last_channel.to_string().as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(&job.line);
        out.push(b'\n');
        self.sent.push_back(Sent { channel: self.last_channel, job, at });
    }

    /// The question that `line` answers, and the rest of the line.
    pub(crate) fn answer<'l>(&mut self, line: &'l [u8]) -> (Answered, &'l [u8]) {
        if !self.has_channels {
            return (self.sent.pop_front().map_or(Answered::Nothing, Answered::Question), line);
        }
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (channel, rest) = line.split_at(digits);
        let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
        let channel = std::str::from_utf8(channel).ok().filter(|_| ends);
        let Some(channel) = channel.and_then(|channel| channel.parse::<u64>().ok()) else {
            return (Answered::Nothing, line);
        };
        let answered = match self.sent.binary_search_by_key(&channel, |sent| sent.channel) {
            Ok(index) => self.sent.remove(index).map_or(Answered::Nothing, Answered::Question),
            Err(_) if self.late.remove(&channel) => Answered::Late,
            Err(_) => Answered::Nothing,
        };
        (answered, rest.trim_ascii_start())
    }

    /// When the oldest question was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.at)
    }

    /// Gives up the oldest question.
    pub(crate) fn give_up_oldest(&mut self) -> Option<Job> {
        let oldest = self.sent.pop_front()?;
        self.late.insert(oldest.channel);
        Some(oldest.job)
    }

    /// Number of questions that were given up, and whose answers have not come.
    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }

    pub(crate) fn into_jobs(self) -> Vec<Job> {
        self.sent.into_iter().map(|sent| sent.job).collect()
    }
}
