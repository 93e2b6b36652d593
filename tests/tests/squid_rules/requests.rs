//! Requests, the origin behind the proxies, and the verdicts that clients get.

use humboldt_tests::Client;
use humboldt_tests::message::Reader;
use humboldt_tests::origin::http_date;
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// One request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The client's address, and ours that it connects to.
    pub(crate) client: IpAddr,
    pub(crate) local: IpAddr,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    /// It is sent twice; its answer may be stored.
    pub(crate) twice: bool,
}

impl Case {
    fn bytes(&self, id: &str) -> Vec<u8> {
        let has_body = matches!(&*self.method, "POST" | "PUT");
        let mut head = format!("{} {} HTTP/1.1\r\nX-Id: {id}\r\n", self.method, self.target);
        if self.twice {
            head += "X-Twice: yes\r\n";
        }
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        if has_body {
            head += "Content-Length: 4\r\n";
        }
        head += "Connection: close\r\n\r\n";
        if has_body {
            head += "body";
        }
        head.into_bytes()
    }

    /// This request with a part less, in many ways.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let answer = self.fields.iter().filter(|(name, _)| name == "X-Answer").cloned().collect();
        all.push(Self { fields: answer, ..self.clone() });
        for at in 0..self.fields.len() {
            let mut one = self.clone();
            one.fields.remove(at);
            all.push(one);
        }
        let simple = ("GET".to_owned(), IpAddr::from([127, 0, 0, 1]));
        if self.twice {
            all.push(Self { twice: false, ..self.clone() });
        }
        if self.method != simple.0 && self.method != "CONNECT" {
            all.push(Self { method: simple.0, ..self.clone() });
        }
        if self.client != simple.1 {
            all.push(Self { client: simple.1, local: simple.1, ..self.clone() });
        }
        all
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) by: By,
    /// Times that the origin was asked.
    pub(crate) asked: usize,
}

/// The sender of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Origin,
    /// The proxy, with this page.
    Proxy(String),
    /// The proxy, with a redirect to this place.
    Redirect(String),
    /// Nobody: the connection was closed.
    Nobody,
    /// A tunnel has begun.
    Tunnel,
}

impl Verdict {
    /// The verdict without what is another one for each request.
    pub(crate) fn sort(&self) -> String {
        let is_asked = if self.asked > 0 { "" } else { ", not asked" };
        match &self.by {
            By::Redirect(_) => format!("{} redirect{is_asked}", self.status),
            By::Origin => format!("origin, {} times", self.asked),
            by => format!("{} {by:?}{is_asked}", self.status),
        }
    }

    /// Whether a rule has refused the request.
    pub(crate) fn is_refusal(&self) -> bool {
        match &self.by {
            // A page of `deny_info` may be any.
            By::Proxy(_) if self.status == 403 => true,
            By::Proxy(page) => !matches!(
                &**page,
                "ERR_CANNOT_FORWARD"
                    | "ERR_CONNECT_FAIL"
                    | "ERR_DNS_FAIL"
                    | "ERR_UNSUP_REQ"
                    | "ERR_UNSUP_PROTO"
                    | "ERR_SECURE_CONNECT_FAIL"
                    | "ERR_METHOD_NOT_ALLOWED"
                    | "ERR_READ_ERROR"
                    | "ERR_FTP_FAILURE"
                    | "MGR_INDEX"
                    | "-"
            ),
            By::Redirect(_) | By::Nobody => true,
            By::Origin | By::Tunnel => false,
        }
    }
}

/// The origin. It answers as the field `X-Answer` of the request says, and counts by `X-Id`.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Origin {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = Arc::clone(&counts);
                std::thread::spawn(move || answer(stream, &counts));
            }
        });
        Self { address, asked }
    }

    fn asked(&self, id: &str) -> usize {
        let counts = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(id).copied().unwrap_or(0)
    }
}

fn answer(stream: TcpStream, counts: &Mutex<HashMap<String, usize>>) {
    let Ok(mut writing) = stream.try_clone() else { return };
    let mut reader = Reader::new(stream);
    let Ok(Some(head)) = reader.head() else { return };
    if let Some(length) = head.field("Content-Length").and_then(|text| text.parse().ok()) {
        let _ = reader.exactly(length);
    }
    if let Some(id) = head.field("X-Id") {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(id.to_owned()).or_default() += 1;
    }
    let wanted = head.field("X-Answer").unwrap_or("200 - -");
    let mut words = wanted.split(' ');
    let mut word = || words.next().filter(|word| *word != "-");
    let status = word().unwrap_or("200");
    let mut text = format!("HTTP/1.1 {status} X\r\nX-Origin: yes\r\nConnection: close\r\n");
    text += &format!("Date: {}\r\n", http_date(0));
    if let Some(media) = word() {
        text += &format!("Content-Type: {media}\r\n");
    }
    if let Some(fruit) = word() {
        text += &format!("X-Fruit: {fruit}\r\n");
    }
    let control = if head.field("X-Twice").is_some() { "max-age=600" } else { "no-store" };
    text += &format!("Cache-Control: {control}\r\nContent-Length: 5\r\n\r\n");
    if head.word(0) != "HEAD" {
        text += "hello";
    }
    let _ = writing.write_all(text.as_bytes());
}

/// Sends a request to a proxy, and tells the verdict. `id` is another one for each.
pub(crate) fn play(case: &Case, port: u16, id: &str, origin: &Origin) -> Verdict {
    let (mut status, mut by) = ask(case, port, id);
    if case.twice {
        (status, by) = ask(case, port, id);
    }
    Verdict { status, by, asked: origin.asked(id) }
}

fn ask(case: &Case, port: u16, id: &str) -> (u16, By) {
    let mut client = Client::from_to(case.client, SocketAddr::new(case.local, port));
    client.send(case.bytes(id));
    let Some(answer) = client.try_response_to(&case.method) else { return (0, By::Nobody) };
    let status = answer.status();
    let by = if answer.field("X-Origin").is_some() {
        By::Origin
    } else if case.method == "CONNECT" && (200..300).contains(&status) {
        By::Tunnel
    } else if let Some(place) = answer.field("Location") {
        By::Redirect(place.to_owned())
    } else {
        let page = answer.field("X-Squid-Error").and_then(|text| text.split(' ').next());
        By::Proxy(page.unwrap_or("-").to_owned())
    };
    (status, by)
}
