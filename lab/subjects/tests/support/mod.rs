//! An origin, a client, and eyes for what a run leaves behind.

use humboldt_lab_subjects::{EnvironmentPlan, Host, Keeper, Mode, StartPlan, StoreKind};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it is broken.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits for something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The example that holds a subject; cargo builds it before the tests.
pub(crate) fn hold_program() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let folder = own.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let program = folder.join("examples/hold");
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}

pub(crate) fn keeper() -> Keeper {
    let mut command = Command::new(hold_program());
    command.arg("keeper");
    Keeper::start(command).expect("a keeper")
}

pub(crate) fn plan(store_kind: StoreKind) -> EnvironmentPlan {
    EnvironmentPlan {
        host: Host::current(),
        parent: None,
        keep_folder: false,
        stores: 1,
        cache_bytes: 40 << 20,
        store_kind,
        throttle: None,
        dirty_bytes_max: None,
    }
}

/// Fewer folders are made sooner.
pub(crate) fn few_folders(name: &str) -> BTreeMap<String, String> {
    let has_them = name.starts_with("squid") || name.starts_with("humboldt");
    has_them.then(|| ("l1_l2".to_owned(), "4 16".to_owned())).into_iter().collect()
}

pub(crate) fn start_plan(origin: &Origin) -> StartPlan {
    StartPlan {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        origins: vec![origin.address()],
        mode: None,
        cache_bytes: 40 << 20,
        memory_bytes: 8 << 20,
        cores: Vec::new(),
        cpu_quota: None,
        cpu_speed: None,
        memory_limit_bytes: None,
        words: BTreeMap::new(),
        tls: None,
    }
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

/// An HTTP server whose every answer may be stored for an hour, and that counts requests by path.
pub(crate) struct Origin {
    address: SocketAddr,
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let counts = Arc::clone(&asked);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = Arc::clone(&counts);
                std::thread::spawn(move || {
                    let _ = Self::serve(stream, &counts);
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn body(path: &str) -> String {
        format!("<{path}>").repeat(50)
    }

    pub(crate) fn asked(&self, path: &str) -> u32 {
        self.asked.lock().expect("no panic").get(path).copied().unwrap_or(0)
    }

    fn serve(stream: TcpStream, counts: &Mutex<BTreeMap<String, u32>>) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
            while line.trim() != "" {
                line.clear();
                reader.read_line(&mut line)?;
            }
            *counts.lock().expect("no panic").entry(target.clone()).or_default() += 1;
            let body = Self::body(&target);
            let head = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
                 Date: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
                http_now(),
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes())?;
        }
    }
}

/// The date as HTTP writes it.
fn http_now() -> String {
    let output =
        Command::new("date").args(["-u", "+%a, %d %b %Y %H:%M:%S GMT"]).env("LC_ALL", "C").output();
    String::from_utf8_lossy(&output.expect("date").stdout).trim().to_owned()
}

/// One request on a connection of its own; the whole answer.
pub(crate) fn exchange(
    to: SocketAddr,
    mode: Mode,
    origin: SocketAddr,
    path: &str,
    fields: &str,
) -> String {
    let target = match mode {
        Mode::Forward => format!("http://{origin}{path}"),
        Mode::Accelerator => path.to_owned(),
    };
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {origin}\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reader = BufReader::new(stream);
    let (mut answer, mut length) = (String::new(), 0);
    loop {
        let start = answer.len();
        if reader.read_line(&mut answer).expect("an answer") == 0 {
            return answer;
        }
        let line = answer[start..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the whole body");
    answer + &String::from_utf8_lossy(&body)
}

/// What there still is of a run: its folder, mounts, loop devices, processes, and what these left
/// in the kernel.
pub(crate) fn traces_of(folder: &Path) -> Vec<String> {
    let base = folder
        .parent()
        .and_then(Path::file_name)
        .expect("the run folder is in a folder of its own");
    traces_with(base.to_str().expect("a plain name"))
}

/// The same for every run whose folder has this in its name.
pub(crate) fn traces_with(text: &str) -> Vec<String> {
    let mut traces = Vec::new();
    for file in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().contains(text) {
            traces.push(format!("folder {}", file.path().display()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    traces.extend(
        mounts.lines().filter(|line| line.contains(text)).map(|line| format!("mount {line}")),
    );
    for block in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(block.path().join("loop/backing_file")).unwrap_or_default();
        if file.contains(text) {
            traces.push(format!("loop device {}", block.path().display()));
        }
    }
    traces.extend(processes_of(text).iter().map(|pid| format!("process {pid}")));
    traces
}

/// Processes with this in their command line.
pub(crate) fn processes_of(text: &str) -> Vec<String> {
    let text = text.as_bytes();
    let names_it = |process: &fs::DirEntry| {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        command.windows(text.len()).any(|part| part == text)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(names_it)
        .filter_map(|process| process.file_name().into_string().ok())
        .collect()
}

/// SysV objects that Squid's processes with these numbers made, and files of an instance outside
/// its folder.
pub(crate) fn left_in_the_kernel(pids: &[String], instance: &str) -> Vec<String> {
    let mut traces = Vec::new();
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    for line in segments.lines().skip(1) {
        if line
            .split_ascii_whitespace()
            .nth(4)
            .is_some_and(|maker| pids.iter().any(|pid| pid == maker))
        {
            traces.push(format!("shared memory {line}"));
        }
    }
    let queues = fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
    for line in queues.lines().skip(1) {
        let key = line
            .split_ascii_whitespace()
            .next()
            .and_then(|key| key.parse::<i64>().ok())
            .unwrap_or(0);
        if pids.contains(&(key >> 10).to_string()) {
            traces.push(format!("queue {line}"));
        }
    }
    for folder in ["/dev/shm", "/run/squid"] {
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            if file.file_name().as_bytes().starts_with(format!("{instance}-").as_bytes()) {
                traces.push(file.path().display().to_string());
            }
        }
    }
    traces
}
