//! The conversation with one process, and its end.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_base::vital::Vital;
use humboldt_sys::signal_mask;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;

use crate::flight::{Answered, Flight};
use crate::pool::{End, Pool};
use crate::reply::Reply;

/// Most bytes of an answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 * 1024;

/// Most bytes of a line on standard error; the rest of a longer one is left out.
const STDERR_LINE_BYTES_MAX: usize = 4096;

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Why a process without channels is ended that writes more than its answers.
const UNASKED: &str = "it has written a line without having been asked";

/// Most bytes of a line shown in a message.
const SHOWN_BYTES_MAX: usize = 64;

/// Longest wait for the last messages of a process that has ended, and for the last answers of one
/// that has closed its input.
const LAST_MESSAGES_MAX: Duration = Duration::from_millis(500);

/// Times from the end of input to SIGTERM, from there to SIGKILL, and from there until a process
/// that cannot end is left alone.
const PATIENCE: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(5), Duration::from_secs(5)];

/// The same at the end of the program.
const HURRY: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_millis(500), Duration::from_millis(500)];

/// A process that was started, with its pipes.
pub(crate) struct Process {
    child: Child,
    pub(crate) pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Process {
    /// Starts a process. It has a process group of its own: Ctrl-C at a terminal is not for it, and
    /// the signals that end it reach its own children too.
    pub(crate) fn start(command: &[String]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = signal_mask::with_none_blocked(|| command.spawn())?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id());
        let (Some(stdin), Some(stdout), Some(stderr), Some(pid)) = pipes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self { child, pid, stdin, stdout, stderr })
    }

    /// Converses until one side ends it, and waits for the end of the process.
    pub(crate) async fn serve(self, pool: Arc<Pool>, number: u64, wake: Arc<Notify>) {
        let _vital = Vital::new("a task that talks to a helper program");
        let name = pool.definition.name.clone();
        let mut messages = tokio::spawn(log_messages(self.stderr, format!("{name} #{number}")));
        let mut conversation = Conversation {
            flight: Flight::new(pool.definition.has_channels()),
            pool: &pool,
            number,
            out: Vec::new(),
            input: Vec::new(),
            searched: 0,
        };
        let end = conversation.run(self.stdin, self.stdout, &wake).await;
        let left = conversation.flight.into_jobs();
        pool.conversation_ended(number, &end, left);
        let status = finish(&pool, self.child, self.pid, &wake, &end).await;
        if end == End::Itself {
            match status {
                Ok(status) => tracing::warn!("{name} #{number}: {status}"),
                Err(error) => tracing::warn!("{name} #{number}: {error}"),
            }
        }
        // A child of the process may hold its standard error.
        if tokio::time::timeout(LAST_MESSAGES_MAX, &mut messages).await.is_err() {
            messages.abort();
        }
        pool.gone(number);
    }
}

struct Conversation<'p> {
    pool: &'p Pool,
    number: u64,
    flight: Flight,
    /// Bytes to write. Bounded by the number of channels and the length of a question.
    out: Vec<u8>,
    /// The beginning of a line.
    input: Vec<u8>,
    /// Bytes of it without an end of line.
    searched: usize,
}

impl Conversation<'_> {
    async fn run(&mut self, mut stdin: ChildStdin, mut stdout: ChildStdout, wake: &Notify) -> End {
        let limit = self.pool.definition.timeout;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if self.speaks_unasked() {
                return End::Fault(UNASKED);
            }
            let (flight, out) = (&mut self.flight, &mut self.out);
            if self.pool.take(self.number, |job| flight.send(job, out, Instant::now())) {
                return End::Told;
            }
            let overdue = self.flight.oldest().map(|at| (at + limit).into());
            tokio::select! {
                () = wake.notified() => {}
                read = stdout.read(&mut buffer) => {
                    let read = match read {
                        Ok(0) | Err(_) => return End::Itself,
                        Ok(length) => buffer.get(..length).unwrap_or_default(),
                    };
                    // It cannot have read a question that is not written yet.
                    if !self.pool.definition.has_channels() && !self.out.is_empty() {
                        return End::Fault(UNASKED);
                    }
                    if let Err(why) = self.receive(read) {
                        return End::Fault(why);
                    }
                }
                written = stdin.write(&self.out), if !self.out.is_empty() => match written {
                    Ok(length) => drop(self.out.drain(..length)),
                    Err(_) => return self.read_last_answers(stdout, &mut buffer).await,
                },
                () = sleep_until(overdue), if overdue.is_some() => {
                    if let Err(why) = self.give_up_overdue(limit) {
                        return End::Fault(why);
                    }
                }
            }
        }
    }

    /// Whether a process without channels has begun a line that answers nothing. It would pass for
    /// the beginning of the next answer.
    fn speaks_unasked(&self) -> bool {
        let is_idle = self.flight.oldest().is_none();
        is_idle && !self.input.is_empty() && !self.pool.definition.has_channels()
    }

    /// Reads what a process has answered before it closed its input.
    async fn read_last_answers(&mut self, mut stdout: ChildStdout, buffer: &mut [u8]) -> End {
        self.out.clear();
        loop {
            let reading = tokio::time::timeout(LAST_MESSAGES_MAX, stdout.read(buffer));
            let Ok(Ok(length @ 1..)) = reading.await else { return End::Itself };
            if let Err(why) = self.receive(buffer.get(..length).unwrap_or_default()) {
                return End::Fault(why);
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.input.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some(at) = rest[self.searched..].iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(self.searched + at);
            self.line(line.strip_suffix(b"\r").unwrap_or(line))?;
            rest = &after[1..];
            self.searched = 0;
        }
        if rest.len() > ANSWER_BYTES_MAX {
            return Err("its answer is too long");
        }
        self.searched = rest.len();
        let done = input.len() - rest.len();
        input.drain(..done);
        self.input = input;
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if line.len() > ANSWER_BYTES_MAX {
            return Err("its answer is too long");
        }
        let (answered, rest) = self.flight.answer(line);
        match answered {
            Answered::Question(sent) => {
                let reply = Reply::parse(rest);
                self.pool.answered(self.number, sent.job, reply, sent.at.elapsed());
            }
            Answered::Late => self.pool.late_answer(self.number),
            // Without channels, the next such line would pass for the answer to another question.
            Answered::Nothing if !self.pool.definition.has_channels() => {
                return Err(UNASKED);
            }
            Answered::Nothing => {
                let shown = line.get(..SHOWN_BYTES_MAX).unwrap_or(line);
                tracing::warn!(
                    "{} #{}: a line that answers no question is ignored (with `concurrency=`, each \
                     answer begins with the number of its question): {}",
                    self.pool.definition.name,
                    self.number,
                    String::from_utf8_lossy(shown)
                );
            }
        }
        Ok(())
    }

    /// Gives up the questions that have taken too long. A process without channels, or with all of
    /// them in use by such questions, is ended.
    fn give_up_overdue(&mut self, limit: Duration) -> Result<(), &'static str> {
        while self.flight.oldest().is_some_and(|at| at.elapsed() >= limit)
            && let Some(job) = self.flight.give_up_oldest()
        {
            self.pool.timed_out(self.number, job);
        }
        match self.flight.late() >= self.pool.definition.capacity() {
            true => Err("it has not answered in time"),
            false => Ok(()),
        }
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the process, whose input and output have been closed, and helps it along
/// with signals.
async fn finish(
    pool: &Pool,
    mut child: Child,
    pid: u32,
    wake: &Notify,
    end: &End,
) -> io::Result<ExitStatus> {
    let mut step = usize::from(matches!(end, End::Fault(_)));
    if step == 1 {
        signal(pid, Signal::TERM);
    }
    let mut since = Instant::now();
    loop {
        let patience = if pool.hurries() { &HURRY } else { &PATIENCE };
        let Some(limit) = patience.get(step) else {
            return Err(io::Error::other(format!("process {pid} does not end, even by SIGKILL")));
        };
        tokio::select! {
            status = child.wait() => return status,
            () = wake.notified() => continue,
            () = tokio::time::sleep_until((since + *limit).into()) => {}
        }
        match step {
            0 => signal(pid, Signal::TERM),
            1 => signal(pid, Signal::KILL),
            _ => {}
        }
        step += 1;
        since = Instant::now();
    }
}

/// To the process, which has not been waited for, and to its children.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        _ = kill_process_group(pid, signal); // it may have ended already
    }
}

/// Writes the lines of a process's standard error to cache.log.
async fn log_messages(stderr: ChildStderr, name: String) {
    let mut stderr = BufReader::with_capacity(STDERR_LINE_BYTES_MAX, stderr);
    let mut line = Vec::new();
    loop {
        let (length, is_end) = match stderr.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
                let room = STDERR_LINE_BYTES_MAX - line.len();
                line.extend_from_slice(part.get(..room).unwrap_or(part));
                (part.len() + usize::from(end.is_some()), end.is_some())
            }
        };
        stderr.consume(length);
        if is_end {
            say(&name, &mut line);
        }
    }
    say(&name, &mut line);
}

fn say(name: &str, line: &mut Vec<u8>) {
    if !line.is_empty() {
        tracing::info!("{name}: {}", String::from_utf8_lossy(line));
    }
    line.clear();
}
