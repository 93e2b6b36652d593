//! What a subject says about its stores: bytes and objects, read from a page of its own, or by a
//! program that belongs to it.

use crate::command::run_command;
use crate::host::find_program;
use crate::{Mode, SubjectError};
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// A page that does not come within this time says nothing: the next sample asks again.
const WITHIN: Duration = Duration::from_millis(500);

/// The longest page that is read, in bytes.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// Stands for the number in a pattern, and for any text before it.
const NUMBER: char = '#';
const ANYTHING: char = '*';

/// A subject's entry `[stored]`: a page or a program, and the lines of it that hold figures. A
/// pattern is the line with `#` for the number; `*` before it is any text; what several lines say
/// is added up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredPage {
    /// The path of the page.
    path: Option<String>,
    /// The program with its arguments, if there is no page.
    #[serde(default)]
    command: Vec<String>,
    /// Bytes in the stores now.
    bytes: String,
    /// The number on that line counts this many bytes: 1, or 1024.
    #[serde(default = "one")]
    bytes_unit: u64,
    /// Objects in the stores now.
    objects: Option<String>,
    /// Bytes of all objects that were stored since the start.
    taken: Option<String>,
}

fn one() -> u64 {
    1
}

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) bytes: Option<u64>,
    pub(crate) objects: Option<u64>,
    pub(crate) taken_bytes: Option<u64>,
}

impl StoredPage {
    /// Whether there is one place to look, and every pattern has its number.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.path.is_some() != self.command.is_empty() {
            return Err("write one of `path` and `command`".to_owned());
        }
        let patterns = [Some(&self.bytes), self.objects.as_ref(), self.taken.as_ref()];
        match patterns.into_iter().flatten().find(|pattern| !pattern.contains(NUMBER)) {
            Some(pattern) => Err(format!("`{pattern}`: write `#` where the line has its number")),
            None => Ok(()),
        }
    }

    /// The templates of the program and its arguments.
    pub(crate) fn command(&self) -> &[String] {
        &self.command
    }

    /// With the words of a subject that is used in this mode; `None` if it cannot be asked.
    pub(crate) fn filled(
        &self,
        mode: Mode,
        expand: impl Fn(&String) -> Result<String, SubjectError>,
    ) -> Result<Option<Self>, SubjectError> {
        // A site has every path for itself: there the question would go to its servers.
        if self.path.is_some() && mode != Mode::Forward {
            return Ok(None);
        }
        let command = self.command.iter().map(expand).collect::<Result<_, _>>()?;
        Ok(Some(Self { command, ..self.clone() }))
    }

    /// Asks for it. Nothing is known if the answer does not come in time.
    pub(crate) fn ask(&self, address: SocketAddr) -> Stored {
        let text = match &self.path {
            Some(path) => page(address, path),
            None => output(&self.command),
        };
        text.map_or_else(Stored::default, |text| self.read(&text))
    }

    fn read(&self, text: &str) -> Stored {
        let of = |pattern: &Option<String>| sum(text, pattern.as_ref()?);
        Stored {
            bytes: sum(text, &self.bytes).map(|number| number.saturating_mul(self.bytes_unit)),
            objects: of(&self.objects),
            taken_bytes: of(&self.taken),
        }
    }
}

/// The sum of the numbers of all lines that are like the pattern; `None` without one.
fn sum(text: &str, pattern: &str) -> Option<u64> {
    let numbers = text.lines().filter_map(|line| number(line, pattern));
    numbers.reduce(u64::saturating_add)
}

fn number(line: &str, pattern: &str) -> Option<u64> {
    let (before, after) = pattern.split_once(NUMBER)?;
    let line = line.trim();
    let rest = match before.split_once(ANYTHING) {
        Some((head, tail)) => line.strip_prefix(head)?.rsplit_once(tail)?.1,
        None => line.strip_prefix(before.trim_end())?,
    };
    let word = rest.trim().strip_suffix(after.trim())?.trim();
    // Some write whole numbers with a fraction, or with an exponent.
    let number: f64 = word.parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some(number as u64)
}

/// What a program writes, if it succeeds.
fn output(words: &[String]) -> Option<String> {
    let (name, arguments) = words.split_first()?;
    let mut command = Command::new(find_program(&[name])?);
    command.args(arguments);
    run_command(command, WITHIN).map(|(out, _)| out).ok()
}

/// The text of a page, head and all.
fn page(address: SocketAddr, path: &str) -> Option<String> {
    let until = Instant::now() + WITHIN;
    let mut stream = TcpStream::connect_timeout(&address, WITHIN).ok()?;
    stream.set_write_timeout(Some(WITHIN)).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut part).ok()? {
            0 => break,
            length => bytes.extend_from_slice(part.get(..length)?),
        }
        if bytes.len() as u64 > PAGE_BYTES_MAX {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split_ascii_whitespace().nth(1)?;
    (status == "200").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn entry(text: &str) -> StoredPage {
        toml::from_str(text).expect("an entry")
    }

    #[test]
    fn figures_are_found_in_pages_of_both_kinds() {
        let metrics = entry(
            "path = \"/metrics\"\nbytes = \"used_bytes{* #\"\nobjects = \"objects{* #\"\n\
             taken = \"object_bytes_total{* #\"",
        );
        let text = "# HELP used_bytes Bytes 7\nused_bytes{dir=\"0 1\"} 1000\n\
                    used_bytes{dir=\"1\"} 2e3\nobjects{dir=\"0\"} 12\nother 5\n";
        let found = metrics.read(text);
        assert_eq!((found.bytes, found.objects, found.taken_bytes), (Some(3_000), Some(12), None));

        let info = entry(
            "path = \"/info\"\nbytes = \"Storage Swap size: # KB\"\nbytes_unit = 1024\n\
             objects = \"# on-disk objects\"",
        );
        let text = "\tStorage Swap size:\t20 KB\n\t     52 on-disk objects\n\t 7 StoreEntries\n";
        let found = info.read(text);
        assert_eq!((found.bytes, found.objects), (Some(20_480), Some(52)));
        assert_eq!(info.read("Storage Swap size: none KB"), Stored::default());
        assert!(entry("path = \"/\"\nbytes = \"used\"").check().is_err());
    }

    #[test]
    fn a_program_says_it_where_there_is_no_page() {
        let text = "command = [\"/bin/sh\", \"-c\", \"{script}\"]\nbytes = \"used # bytes\"";
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        let ask = |script: &str| {
            let expand = |word: &String| Ok(word.replace("{script}", script));
            let filled = entry(text).filled(Mode::Accelerator, expand);
            filled.expect("words").expect("a program can always be asked").ask(nobody)
        };
        assert_eq!(ask("echo used 7 bytes").bytes, Some(7));
        assert_eq!(ask("echo used 7 bytes; exit 1"), Stored::default());
        let page = entry("path = \"/\"\nbytes = \"#\"");
        let of_site = page.filled(Mode::Accelerator, |word| Ok(word.clone()));
        assert_eq!(of_site.expect("words"), None, "its servers would answer");
        for wrong in ["bytes = \"#\"", "path = \"/\"\ncommand = [\"a\"]\nbytes = \"#\""] {
            assert!(entry(wrong).check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_is_asked_for_and_a_refusal_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\n\r\nused 12\n", "HTTP/1.1 403 No\r\n\r\nused 12\n"] {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut head = [0; 18];
                stream.read_exact(&mut head).expect("a request");
                assert_eq!(&head, b"GET /here HTTP/1.0");
                stream.write_all(answer.as_bytes()).expect("an answer");
                let mut rest = [0; 1_024];
                let _ = stream.read(&mut rest);
            }
        });
        let page = entry("path = \"/here\"\nbytes = \"used #\"");
        assert_eq!(page.ask(address).bytes, Some(12));
        assert_eq!(page.ask(address), Stored::default());
        server.join().expect("both were asked for");
    }
}
