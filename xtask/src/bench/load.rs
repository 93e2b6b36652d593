//! The load: wrk for throughput, and a small client for the parts that wrk cannot do.

use super::Plan;
use super::subjects::{Style, Subject};
use crate::Outcome;
use humboldt_lab_wire::response_head;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// As many as the published figures of this project use.
const CONNECTIONS: &str = "64";

/// A server that takes longer is broken, not slow.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// One turn of one subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) cpu_us: u64,
    pub(super) p99_us: u64,
}

impl Sample {
    pub(super) fn cpu_us_per_request(&self) -> f64 {
        self.cpu_us as f64 / self.requests.max(1) as f64
    }

    pub(super) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds.max(1e-6)
    }
}

/// Prints one line that [`parse_summary`] reads.
const LUA_SUMMARY: &str = "
function done(summary, latency, requests)
  local e = summary.errors
  print(string.format('summary %d %d %d %d', summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(99)))
end
";

/// A script that sends one request, built once, again and again.
pub(super) fn repeat_script(target: &str, host: SocketAddr) -> String {
    // wrk calls this once and formats its only request afterwards.
    format!(
        "function init(args)\n  wrk.path = '{target}'\n  wrk.headers['Host'] = '{host}'\nend\n{LUA_SUMMARY}"
    )
}

/// A script that asks for `{target}` followed by a number that was never used before. The request's
/// text is glued from constants, so that the script costs as little as it can.
pub(super) fn unique_script(target: &str, host: SocketAddr, first: u64) -> String {
    format!(
        "local n = {first}\nlocal head = 'GET {target}'\nlocal tail = ' HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n'\n\
         function request()\n  n = n + 1\n  return head .. n .. tail\nend\n{LUA_SUMMARY}"
    )
}

/// The target of a request to `subject` for a path of the origin.
pub(super) fn target(subject: &Subject, origin: SocketAddr, path: &str) -> String {
    match subject.style {
        Style::Forward => format!("http://{origin}{path}"),
        Style::Direct => path.to_owned(),
    }
}

/// Lets wrk work on the load's core for one turn, and takes the subject's CPU time before and
/// after.
pub(super) fn turn(
    plan: &Plan,
    subject: &Subject,
    script: &Path,
    length: Duration,
) -> Outcome<Sample> {
    let cpu_before_us = subject.process.cpu_us()?;
    let output = Command::new("taskset")
        .arg("-c")
        .arg(plan.load_core.to_string())
        .args(["wrk", "--threads", "1", "--connections", CONNECTIONS, "--timeout", "10s"])
        .arg("--duration")
        .arg(format!("{}s", length.as_secs().max(1)))
        .arg("--script")
        .arg(script)
        .arg(format!("http://{}/", subject.address))
        .output()?;
    let cpu_us = subject.process.cpu_us()? - cpu_before_us;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some([requests, duration_us, errors, p99_us]) = parse_summary(&text) else {
        return Err(format!(
            "{}: wrk says: {text}{}",
            subject.name,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    };
    if errors > requests / 1000 || requests == 0 {
        return Err(format!("{}: {errors} errors in {requests} requests", subject.name).into());
    }
    Ok(Sample { requests, seconds: duration_us as f64 / 1e6, cpu_us, p99_us })
}

pub(super) fn parse_summary(text: &str) -> Option<[u64; 4]> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary "))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

pub(super) fn write_script(folder: &Path, name: &str, text: &str) -> Outcome<std::path::PathBuf> {
    let path = folder.join(format!("{name}.lua"));
    fs::write(&path, text)?;
    Ok(path)
}

/// A client connection that is kept between requests.
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Asks for a target and reads the whole answer; returns status and body length.
    pub(super) fn get(&mut self, target: &str, host: SocketAddr) -> Outcome<(u16, usize)> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.buffer.clear();
        let mut chunk = [0; 65_536];
        let (status, length, mut got) = loop {
            if let Some(head) = response_head(&self.buffer)? {
                let got = self.buffer.len() - head.len_bytes();
                break (head.status(), head.content_length(), got);
            }
            let len = read(&mut self.stream, &mut chunk)?;
            if len == 0 {
                return Err(format!("closed before an answer to {target}").into());
            }
            self.buffer.extend_from_slice(&chunk[..len]);
        };
        let length = usize::try_from(length.ok_or("an answer without Content-Length")?)?;
        while got < length {
            match read(&mut self.stream, &mut chunk)? {
                0 => return Err(format!("{target} ended after {got} of {length} bytes").into()),
                len => got += len,
            }
        }
        Ok((status, length))
    }

    /// Whether the last answer was a hit by its `X-Cache`.
    pub(super) fn is_hit(&self) -> bool {
        let head = response_head(&self.buffer).ok().flatten();
        let cache = head.and_then(|head| head.header("x-cache"));
        cache.is_some_and(|value| value.to_ascii_lowercase().starts_with(b"hit"))
    }
}

/// One read, begun again when a signal interrupts it.
fn read(stream: &mut TcpStream, chunk: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Requests it three times, so that every cache stores the object, and checks the answers.
pub(super) fn warm(
    subject: &Subject,
    origin: SocketAddr,
    path: &str,
    body_bytes: usize,
) -> Outcome {
    let target = target(subject, origin, path);
    let mut client = Client::connect(subject.address)?;
    for _ in 0..3 {
        let (status, length) = client.get(&target, origin)?;
        if (status, length) != (200, body_bytes) {
            return Err(
                format!("{}: {target}: status {status}, {length} bytes", subject.name).into()
            );
        }
    }
    Ok(())
}

/// A deadline for loops over many requests.
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub(super) fn check(&self) -> Outcome {
        if Instant::now() > self.0 { Err("the benchmark took too long".into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_line_is_found() {
        assert_eq!(
            parse_summary("Running 1s test\nsummary 100 1000000 0 950\n"),
            Some([100, 1_000_000, 0, 950])
        );
        assert_eq!(parse_summary("unable to connect"), None);
    }
}
