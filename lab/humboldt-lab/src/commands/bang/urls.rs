//! The URLs of a bang: generated, read into memory, or read while they are requested.

use super::Plan;
use super::stand::World;
use crate::Failure;
use crate::cli::BangArgs;
use crate::interrupt::Interrupt;
use humboldt_lab_robots::{BangTarget, SHUFFLED_MAX};
use humboldt_lab_workload::{Ask, Stream, Workload};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// Bytes of a line that are looked at. The banger passes over longer URLs, so one more is enough to
/// see it.
const LINE_BYTES_MAX: usize = 8 * 1024 + 1;

/// Most bytes of all URLs in memory; their number is bounded by [`SHUFFLED_MAX`].
const LIST_BYTES_MAX: usize = 512 << 20;

/// Lines that are read ahead of the requests for them.
const LINES_AHEAD: usize = 4096;

/// How soon a signal is noticed while a list is read.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// Bits of a request id that tell apart the requests of one µs.
const ID_COUNT_BITS: u32 = 13;

/// The source of URLs.
pub(super) struct Urls {
    source: Source,
    name: String,
    next_id: u64,
    repeats: u64,
}

enum Source {
    Generated {
        workload: Arc<Workload>,
        seed: u64,
        working_set_objects: u64,
        count: u64,
    },
    Listed(List),
    /// For one pass in the given order: read while they are requested.
    Streamed {
        lines: Receiver<io::Result<String>>,
        failure: Option<io::Error>,
    },
}

impl Urls {
    /// Finds or reads the URLs. In their order and for one pass they need not be in memory.
    pub(super) fn open(
        arguments: &BangArgs,
        plan: &Plan,
        world: Option<&World>,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        // A store that an earlier run filled gives that run's ids: they must not look like ours.
        let next_id = humboldt_lab_wire::unix_us() << ID_COUNT_BITS;
        if let (Some(count), Some(world)) = (plan.generate, world) {
            if !arguments.in_order && count > SHUFFLED_MAX as u64 {
                return Err(too_many());
            }
            let (workload, seed) = (Arc::clone(&world.workload), arguments.seed);
            let name = format!("{count} of {}", workload.name());
            let working_set_objects = world.working_set_objects;
            let source = Source::Generated { workload, seed, working_set_objects, count };
            return Ok(Self { source, name, next_id, repeats: 0 });
        }
        let (input, name) = open_input(arguments.urls.as_deref())?;
        let lines = read_lines(input);
        let source = if arguments.in_order && plan.passes == 1 {
            Source::Streamed { lines, failure: None }
        } else {
            Source::Listed(List::read(&lines, &name, interrupt)?)
        };
        Ok(Self { source, name, next_id, repeats: 0 })
    }

    /// Their name in tables, after a pass.
    pub(super) fn describe(&self) -> String {
        match self.repeats {
            0 => self.name.clone(),
            repeats => format!("{}, {repeats} of them repeats", self.name),
        }
    }

    /// Their number, if it is known in advance.
    pub(super) fn count(&self) -> Option<u64> {
        match &self.source {
            Source::Generated { count, .. } => Some(*count),
            Source::Listed(list) => Some(list.ends.len() as u64),
            Source::Streamed { .. } => None,
        }
    }

    /// All of them, one time each.
    pub(super) fn pass(&mut self) -> Box<dyn Iterator<Item = BangTarget> + '_> {
        match &mut self.source {
            Source::Generated { workload, seed, working_set_objects, count } => {
                let stream = Stream::new(Arc::clone(workload), *seed, 0, 1, *working_set_objects);
                self.repeats = 0;
                let (next_id, repeats) = (&mut self.next_id, &mut self.repeats);
                Box::new(Generated { stream, visit: Vec::new(), left: *count, next_id, repeats })
            }
            Source::Listed(list) => {
                Box::new(list.urls().map(|url| BangTarget::Url(url.to_owned())))
            }
            Source::Streamed { lines, failure } => Box::new(Streamed { lines, failure }),
        }
    }

    /// Why reading ended before the end.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        let Source::Streamed { failure, .. } = &mut self.source else { return None };
        failure.take().map(|error| Failure::run(format!("{}: {error}", self.name)))
    }
}

/// Requests of a workload's stream, with ids that no other pass and no other run has.
struct Generated<'u> {
    stream: Stream,
    /// The rest of a visit, the next one last.
    visit: Vec<Ask>,
    left: u64,
    next_id: &'u mut u64,
    repeats: &'u mut u64,
}

impl Iterator for Generated<'_> {
    type Item = BangTarget;

    fn next(&mut self) -> Option<BangTarget> {
        self.left = self.left.checked_sub(1)?;
        if self.visit.is_empty() {
            self.stream.next_visit(&mut self.visit);
            self.visit.reverse();
        }
        let ask = self.visit.pop()?;
        *self.next_id += 1;
        *self.repeats += u64::from(ask.repeat);
        Some(BangTarget::Ask(Ask { id: *self.next_id, ..ask }))
    }
}

/// URLs that come while others are requested.
struct Streamed<'u> {
    lines: &'u Receiver<io::Result<String>>,
    failure: &'u mut Option<io::Error>,
}

impl Iterator for Streamed<'_> {
    type Item = BangTarget;

    fn next(&mut self) -> Option<BangTarget> {
        match self.lines.try_recv() {
            Ok(Ok(url)) => Some(BangTarget::Url(url)),
            Ok(Err(error)) => {
                *self.failure = Some(error);
                None
            }
            Err(TryRecvError::Empty) => Some(BangTarget::NotYet),
            Err(TryRecvError::Disconnected) => None,
        }
    }
}

/// URLs in memory, one behind the other.
#[derive(Default)]
struct List {
    text: String,
    ends: Vec<usize>,
}

impl List {
    fn read(
        lines: &Receiver<io::Result<String>>,
        name: &str,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let mut list = Self::default();
        while !interrupt.is_set() {
            match lines.recv_timeout(READ_PAUSE) {
                Ok(Ok(url)) => list.push(&url)?,
                Ok(Err(error)) => return Err(Failure::usage(format!("{name}: {error}"))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if list.ends.is_empty() => {
                    return Err(Failure::usage(format!(
                        "{name}: no URL in it; give one in each line"
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(list),
            }
        }
        Err(Failure::interrupted())
    }

    fn push(&mut self, url: &str) -> Result<(), Failure> {
        if self.ends.len() == SHUFFLED_MAX || self.text.len() + url.len() > LIST_BYTES_MAX {
            return Err(too_many());
        }
        self.text.push_str(url);
        self.ends.push(self.text.len());
        Ok(())
    }

    fn urls(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).filter_map(|(begin, end)| self.text.get(begin..*end))
    }
}

fn too_many() -> Failure {
    Failure::usage(format!(
        "more than {SHUFFLED_MAX} URLs or {} cannot be shuffled or requested again: split the list, or request it \
         --in-order in one pass",
        crate::units::show_bytes(LIST_BYTES_MAX as u64)
    ))
}

fn open_input(path: Option<&Path>) -> Result<(Box<dyn Read + Send>, String), Failure> {
    if let Some(path) = path.filter(|path| *path != Path::new("-")) {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        return Ok((Box::new(file), name));
    }
    if io::stdin().is_terminal() {
        let _ = writeln!(
            io::stderr(),
            "reading URLs from the terminal, one in a line; Ctrl-D ends them"
        );
    }
    Ok((Box::new(io::stdin()), "standard input".to_owned()))
}

/// Reads lines on a thread of its own: neither a slow list nor a silent terminal may delay requests
/// under way, or Ctrl-C. The thread ends with its input or, when its lines are not needed any more,
/// with the next line.
fn read_lines(input: impl Read + Send + 'static) -> Receiver<io::Result<String>> {
    let (sender, receiver) = sync_channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let (mut input, mut line) = (BufReader::new(input), Vec::new());
        loop {
            let sent = match read_line(&mut input, &mut line) {
                Ok(false) => return,
                Ok(true) => url_in(&line).is_none_or(|url| sender.send(Ok(url)).is_ok()),
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            if !sent {
                return;
            }
        }
    });
    receiver
}

/// The URL of a line, unless it is empty or a comment.
fn url_in(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    let is_url = !line.is_empty() && !line.starts_with(b"#");
    is_url.then(|| String::from_utf8_lossy(line).into_owned())
}

/// Reads to the end of a line, and keeps the beginning of one that is too long; `false` at the end
/// of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut has_any = false;
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok(has_any);
        }
        has_any = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let rest = &bytes[..end.unwrap_or(bytes.len())];
        line.extend_from_slice(&rest[..rest.len().min(LINE_BYTES_MAX - line.len())]);
        let read = end.map_or(bytes.len(), |end| end + 1);
        input.consume(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        read_lines(io::Cursor::new(text.as_bytes().to_vec())).iter().map(Result::unwrap).collect()
    }

    #[test]
    fn empty_lines_and_comments_are_passed_over() {
        let text = "http://a/1\r\n\n  # no\n#http://a/2\n\thttp://a/3 \nnonsense\nhttp://a/4";
        assert_eq!(all(text), ["http://a/1", "http://a/3", "nonsense", "http://a/4"]);
        assert!(all("").is_empty() && all("\n\n").is_empty());
    }

    #[test]
    fn a_line_without_end_needs_no_more_memory_than_a_long_one() {
        let text = format!("http://a/{}\nhttp://b/", "x".repeat(100_000));
        let lines = all(&text);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, 9]);
    }

    #[test]
    fn a_list_gives_what_was_put_in_as_often_as_it_is_asked() {
        let mut list = List::default();
        for url in ["http://a/", "http://bb/", "http://c/1"] {
            list.push(url).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(list.urls().collect::<Vec<_>>(), ["http://a/", "http://bb/", "http://c/1"]);
        }
        let long = "x".repeat(1 << 20);
        let refused = (0..513).find_map(|_| list.push(&long).err()).unwrap();
        assert!(refused.code() == 2 && refused.to_string().contains("--in-order"), "{refused}");
    }

    #[test]
    fn a_silent_list_holds_up_nothing() {
        let (reader, mut writer) = io::pipe().unwrap();
        let source = Source::Streamed { lines: read_lines(reader), failure: None };
        let mut urls = Urls { source, name: String::new(), next_id: 0, repeats: 0 };
        assert_eq!(urls.pass().next(), Some(BangTarget::NotYet));
        writer.write_all(b"http://a/\nhttp://b/").unwrap();
        drop(writer);
        let came: Vec<_> = urls.pass().filter(|target| *target != BangTarget::NotYet).collect();
        assert_eq!(came, ["http://a/", "http://b/"].map(|url| BangTarget::Url(url.to_owned())));
        assert!(urls.take_failure().is_none());
    }

    #[test]
    fn a_list_that_breaks_off_is_a_failure() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("cable cut"))
            }
        }
        let input = io::Cursor::new("http://a/\n").chain(Broken);
        let source = Source::Streamed { lines: read_lines(input), failure: None };
        let mut urls = Urls { source, name: "list".to_owned(), next_id: 0, repeats: 0 };
        let came = urls.pass().filter(|target| *target != BangTarget::NotYet).count();
        assert_eq!((came, urls.take_failure()), (1, Some(Failure::run("list: cable cut"))));
        let lines = read_lines(Broken);
        assert!(List::read(&lines, "list", &Interrupt::default()).is_err());
        let none = read_lines(io::Cursor::new("# nothing\n"));
        assert_eq!(
            List::read(&none, "list", &Interrupt::default()).err().map(|failure| failure.code()),
            Some(2)
        );
    }

    #[test]
    fn generated_urls_differ_and_no_id_comes_twice() {
        let workload = Arc::new(Workload::builtin("uniform-unique").unwrap().unwrap());
        let source =
            Source::Generated { workload, seed: 1, working_set_objects: u64::MAX, count: 10_001 };
        let mut urls = Urls { source, name: "some".to_owned(), next_id: 7, repeats: 0 };
        let (mut names, mut ids) =
            (std::collections::HashSet::new(), std::collections::HashSet::new());
        for _ in 0..2 {
            for target in urls.pass() {
                let BangTarget::Ask(ask) = target else { panic!("{target:?}") };
                names.insert(ask.name);
                ids.insert(ask.id);
            }
        }
        assert_eq!((names.len(), ids.len()), (10_000, 20_002));
        assert_eq!(urls.describe(), "some, 1 of them repeats");
    }
}
