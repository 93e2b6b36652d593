//! A client that knows the answers that it may get.

use crate::content::{LANGUAGES, Object, Random, length_min, varies};
use humboldt_tests::{Client, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// The state that the clients of one life of the proxy share.
pub(crate) struct Life {
    pub(crate) proxy: SocketAddr,
    /// The part before a path.
    pub(crate) origin: String,
    /// Set just before the proxy is killed: connections end from then on.
    pub(crate) ended: AtomicBool,
    /// The last version that a request has asked for, in all lives.
    pub(crate) versions: AtomicU64,
    /// The same at the beginning of this life.
    pub(crate) version_before: u64,
}

impl Life {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// Counts, to show that the test sees anything.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) answers: usize,
    pub(crate) purges: usize,
    /// Hits on objects of an earlier life of the proxy, which can only come from disk.
    pub(crate) survivors: usize,
    /// Answers that are older than one before, in one life: fresh ones may be, but it should stay
    /// rare.
    pub(crate) older: usize,
}

/// One path, which only one client asks for.
struct Page {
    path: String,
    /// Oldest version that is allowed since the last PURGE that was acknowledged.
    purged: u64,
    /// The last answers in this life, by language.
    seen: [u64; 2],
    /// The first version that was asked for and not waited for in this life. The proxy may come to
    /// it at any time: its answer may be stored after a later one, and after a purge.
    given_up: Option<u64>,
    /// The requests and answers of this life, for messages.
    history: Vec<String>,
}

/// One client.
pub(crate) struct Worker {
    pages: Vec<Page>,
    random: Random,
    client: Option<Client>,
    pub counts: Counts,
}

/// The proxy has ended: there is no more to be seen in this life.
struct Ended;

impl Worker {
    pub(crate) fn new(paths: impl Iterator<Item = String>, seed: u64) -> Self {
        let page =
            |path| Page { path, purged: 0, seen: [0; 2], given_up: None, history: Vec::new() };
        let pages = paths.map(page).collect();
        Self { pages, random: Random(seed), client: None, counts: Counts::default() }
    }

    /// Asks until the proxy ends. `answered` hears of every answer.
    ///
    /// # Panics
    /// If an answer is wrong, or there is none while the proxy runs.
    pub(crate) fn run(&mut self, life: &Life, answered: &Sender<()>) {
        self.begin();
        while !life.has_ended() {
            if self.step(life).is_err() {
                return;
            }
            let _ = answered.send(());
        }
    }

    /// Asks for everything once.
    ///
    /// # Panics
    /// If an answer is wrong.
    pub(crate) fn sweep(&mut self, life: &Life) {
        self.begin();
        for at in 0..self.pages.len() {
            for language in 0..2 {
                assert!(self.get(life, at, language, &[]).is_ok());
            }
        }
        self.client = None;
    }

    fn begin(&mut self) {
        self.client = None;
        for page in &mut self.pages {
            page.seen = [page.purged; 2];
            page.given_up = None;
            page.history.clear();
        }
    }

    fn step(&mut self, life: &Life) -> Result<(), Ended> {
        let (at, language) = (self.random.below(self.pages.len()), self.random.below(2));
        let length = length_min(&self.pages[at].path);
        let from = self.random.below(length);
        let range = format!("bytes={from}-{}", from + self.random.below(length - from));
        match self.random.below(100) {
            0..8 => self.purge(life, at),
            8..12 => self.give_up(life, at, language),
            12..20 => self.get(life, at, language, &[("Cache-Control", "no-cache")]),
            20..28 => self.get(life, at, language, &[("Cache-Control", "max-age=0")]),
            28..36 if length > 0 => self.get(life, at, language, &[("Range", &range)]),
            _ => self.get(life, at, language, &[]),
        }
    }

    /// Sends a request, on a new connection if there is none.
    fn send(
        &mut self,
        life: &Life,
        method: &str,
        at: usize,
        fields: &[(&str, &str)],
    ) -> Result<(), Ended> {
        let target = format!("{}{}", life.origin, self.pages[at].path);
        if self.client.is_none() {
            self.client = Client::try_to(life.proxy);
        }
        match &mut self.client {
            Some(client) => {
                client.request(method, &target, fields, b"");
                Ok(())
            }
            None if life.has_ended() => Err(Ended),
            None => panic!("the proxy takes no connection"),
        }
    }

    /// An answer that is there to its last byte.
    fn receive(&mut self, life: &Life) -> Result<Response, Ended> {
        let answer = self.client.as_mut().and_then(|client| client.try_response_to("GET"));
        match answer {
            Some(answer) if answer.is_complete => {
                if answer
                    .field("Connection")
                    .is_some_and(|value| value.eq_ignore_ascii_case("close"))
                {
                    self.client = None;
                }
                self.counts.answers += 1;
                Ok(answer)
            }
            _ if life.has_ended() => Err(Ended),
            Some(answer) => panic!("it ends at byte {}: {:?}", answer.body.len(), answer.head),
            None => panic!("no answer, though the proxy runs"),
        }
    }

    fn purge(&mut self, life: &Life, at: usize) -> Result<(), Ended> {
        self.send(life, "PURGE", at, &[])?;
        let answer = self.receive(life)?;
        assert!(matches!(answer.status(), 200 | 404), "PURGE: {:?}", answer.head);
        self.counts.purges += 1;
        let page = &mut self.pages[at];
        page.history.push(format!("PURGE {}", answer.status()));
        // Nothing that was asked for until now may be seen again, in this life or a later one.
        let next = life.versions.load(Ordering::SeqCst) + 1;
        page.purged = page.given_up.map_or(next, |given_up| given_up.max(page.purged));
        page.seen = [page.purged; 2];
        Ok(())
    }

    /// Asks, and does not wait for the answer.
    fn give_up(&mut self, life: &Life, at: usize, language: usize) -> Result<(), Ended> {
        let version = next(life);
        let page = &mut self.pages[at];
        page.given_up = page.given_up.or(version.parse().ok());
        page.history.push(format!("{version} given up"));
        self.send(life, "GET", at, &fields(&version, language, &[]))?;
        self.client = None;
        Ok(())
    }

    fn get(
        &mut self,
        life: &Life,
        at: usize,
        language: usize,
        more: &[(&str, &str)],
    ) -> Result<(), Ended> {
        let version = next(life);
        self.send(life, "GET", at, &fields(&version, language, more))?;
        let answer = self.receive(life)?;
        let page = &mut self.pages[at];
        let object = identify(&answer, page, language);
        let asked: u64 = version.parse().unwrap_or(0);
        let (status, cache) = (answer.status(), answer.cache());
        page.history.push(format!("{version} {more:?}: {status} {cache} {}", object.version));
        check_version(page, &object, asked, &answer);
        check_body(&object, &answer);
        let slot = if varies(&page.path) { language } else { 0 };
        self.counts.survivors +=
            usize::from(answer.cache() == "HIT" && object.version <= life.version_before);
        self.counts.older +=
            usize::from(object.version < page.seen[slot] && page.given_up.is_none());
        page.seen[slot] = object.version;
        Ok(())
    }
}

fn next(life: &Life) -> String {
    (life.versions.fetch_add(1, Ordering::SeqCst) + 1).to_string()
}

fn fields<'a>(
    version: &'a str,
    language: usize,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![("X-Version", version), ("Accept-Language", LANGUAGES[language])];
    fields.extend_from_slice(more);
    fields
}

/// The identity of an answer: head and path, and language where they matter, belong together.
fn identify(answer: &Response, page: &Page, language: usize) -> Object {
    let head = &answer.head;
    assert!(matches!(answer.status(), 200 | 206), "{}: {head:?}\n{}", page.path, answer.text());
    let object = answer.field("X-Object").and_then(Object::parse);
    let object = object.unwrap_or_else(|| panic!("{}: no X-Object: {head:?}", page.path));
    let expected = if varies(&page.path) { LANGUAGES[language] } else { "-" };
    assert_eq!(
        (&*object.path, &*object.language),
        (&*page.path, expected),
        "another object: {head:?}"
    );
    if !page.path.starts_with("/plain/") {
        assert_eq!(answer.field("ETag"), Some(&*object.etag()), "{head:?}");
    }
    object
}

fn check_version(page: &Page, object: &Object, asked: u64, answer: &Response) {
    let (version, head) = (object.version, &answer.head);
    assert!(version <= asked, "version {version} comes from the future: {head:?}");
    assert!(
        version >= page.purged,
        "all before version {} was purged: {head:?}\n{:#?}",
        page.purged,
        page.history
    );
}

fn check_body(object: &Object, answer: &Response) {
    let (body, head) = (object.body(), &answer.head);
    if answer.status() == 200 {
        assert_eq!(answer.body.len(), body.len(), "length: {head:?}");
        let wrong = body.iter().zip(&answer.body).position(|(expected, got)| expected != got);
        assert_eq!(wrong, None, "first wrong byte: {head:?}");
        return;
    }
    let range = answer.field("Content-Range").and_then(|value| value.strip_prefix("bytes "));
    let (part, total) = range.and_then(|value| value.split_once('/')).unwrap_or_default();
    assert_eq!(total, body.len().to_string(), "{head:?}");
    let (first, last) = part.split_once('-').unwrap_or_default();
    let (first, last): (usize, usize) =
        (first.parse().expect("a number"), last.parse().expect("a number"));
    let is_right = body.get(first..=last).is_some_and(|expected| expected == answer.body);
    assert!(is_right, "wrong bytes in {part}: {head:?}");
}
