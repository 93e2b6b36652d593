//! Starting, watching and ending the program under test.

use crate::client::Client;
use crate::wait::{Ending, LIMIT, free_address, start, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The beginning of every scenario's configuration. Access rules come last, so that a scenario can
/// put its own first.
const FIRST_LINES: &str = "\
pid_filename {dir}/pid
access_log stdio:{dir}/access.log squid
cache_log {dir}/cache.log
coredump_dir {dir}
visible_hostname proxy.test
shutdown_lifetime 1 seconds
";

/// The program: that of `HUMBOLDT_BIN`, or one that cargo builds now with the profile of this test.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("HUMBOLDT_BIN") {
            return PathBuf::from(path);
        }
        let own = std::env::current_exe().expect("the path of this test");
        let folder =
            own.parent().and_then(Path::parent).expect("target/PROFILE/deps").to_path_buf();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "humboldt"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        if let Some(target) = folder.parent() {
            build.env("CARGO_TARGET_DIR", target);
        }
        assert!(build.status().expect("cargo runs").success(), "humboldt does not build");
        folder.join("humboldt")
    })
}

/// Whether real Squid takes the place of the program; it does not pass all tests.
#[must_use]
pub fn is_squid() -> bool {
    program().file_name().is_some_and(|name| name == "squid")
}

/// Runs the program with these arguments to its end.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    start(&mut command).and_then(Child::wait_with_output).expect("the program starts")
}

/// A directory that a program which gives up root's rights can use.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn open_folder() -> TempDir {
    let folder = TempDir::with_prefix("humboldt-test-").expect("a temporary directory");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("open to all users");
    folder
}

/// Ends a connection on which nothing was sent, and waits until the proxy has closed it too: until
/// then it counts as one of this client's.
fn await_end(mut probe: TcpStream) {
    // A port that does not answer the end leaves the connection to be counted, as before.
    let _ = probe.set_read_timeout(Some(Duration::from_secs(2)));
    let _ = probe.shutdown(Shutdown::Write);
    let _ = probe.read(&mut [0; 64]);
}

/// A running proxy; dropping it ends it and removes its directory.
pub struct Proxy {
    child: Option<Child>,
    address: SocketAddr,
    folder: TempDir,
}

impl Proxy {
    /// A forward proxy. In `lines`, `{dir}` is replaced by its own directory.
    #[must_use]
    pub fn forward(lines: &str) -> Self {
        Self::start("", lines)
    }

    /// An accelerator in front of `origin`, known to clients as `site.test`.
    #[must_use]
    pub fn reverse(origin: SocketAddr, lines: &str) -> Self {
        let peer = format!(
            "cache_peer {} parent {} 0 no-query originserver name=origin\n{lines}",
            origin.ip(),
            origin.port()
        );
        Self::start("accel defaultsite=site.test", &peer)
    }

    /// The URL of one of its own pages, also where it is an accelerator.
    #[must_use]
    pub fn page(&self, name: &str) -> String {
        format!("http://proxy.test:{}/{name}", self.address.port())
    }

    /// A figure of the metrics page, as a whole number; 0 if it is not there.
    ///
    /// # Panics
    /// When it is no number.
    #[must_use]
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let target = self.page("metrics");
        let page = self.client().request("GET", &target, &[], b"").response().expect(200).text();
        let value = page
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.rsplit(' ').next());
        value.map_or(0, |value| value.parse::<f64>().expect("a number") as u64)
    }

    /// Waits until the index of its cache directory has been read, and it may store there.
    ///
    /// # Panics
    /// If that takes too long.
    #[track_caller]
    pub fn wait_for_directory(&self) {
        until("the directory", || (self.metric("humboldt_store_rebuild_ratio") == 1).then_some(()));
    }

    /// Writes the configuration, creates stores if there are any, starts, and waits until it
    /// accepts connections and the one by which that was found is none of its client's any more.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(port_options: &str, lines: &str) -> Self {
        let mut proxy = Self { child: None, address: free_address(), folder: open_folder() };
        proxy.write_configuration(port_options, lines);
        if lines.lines().any(|line| line.starts_with("cache_dir") && !line.contains("null")) {
            let created = run(&["-z", "-N", "-f", &proxy.configuration()]);
            assert!(created.status.success(), "-z: {}", String::from_utf8_lossy(&created.stderr));
        }
        let probe = proxy.launch_by(Command::new(program()));
        await_end(probe);
        proxy
    }

    /// Replaces the configuration file; it counts after a reconfiguration or a restart.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_configuration(&self, port_options: &str, lines: &str) {
        let mut text = format!("http_port {} {port_options}\n{FIRST_LINES}{lines}\n", self.address);
        text += "http_access allow all\n";
        let folder = self.folder.path().display().to_string();
        fs::write(self.configuration(), text.replace("{dir}", &folder))
            .expect("a configuration file");
    }

    /// Starts the program again after [`Proxy::stop`] or [`Proxy::kill`], and waits until its port
    /// is open. It may serve nothing yet.
    ///
    /// # Panics
    /// If it does not start.
    pub fn launch(&mut self) {
        drop(self.launch_by(Command::new(program())));
    }

    /// The same in a control group, which has this folder.
    ///
    /// # Panics
    /// If it does not start.
    pub fn launch_in(&mut self, group: &Path) {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(group.join("cgroup.procs"))
            .arg(program());
        drop(self.launch_by(shell));
    }

    /// The same with this variable of the environment.
    ///
    /// # Panics
    /// If it does not start.
    pub fn launch_with(&mut self, name: &str, value: &Path) {
        let mut command = Command::new(program());
        command.env(name, value);
        drop(self.launch_by(command));
    }

    /// The same with this limit of address space. How much of it the program takes is about the
    /// same each time: glibc reserves 64 MiB for some threads otherwise, as it happens.
    ///
    /// # Panics
    /// If it does not start.
    pub fn launch_within(&mut self, address_space_kib: u64) {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
            .env("MALLOC_ARENA_MAX", "1")
            .arg(address_space_kib.to_string())
            .arg(program());
        drop(self.launch_by(shell));
    }

    /// The connection that found the port open.
    fn launch_by(&mut self, mut command: Command) -> TcpStream {
        let output = File::options()
            .append(true)
            .create(true)
            .open(self.path("output"))
            .expect("a file for output");
        command
            .args(["-N", "-f", &self.configuration()])
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        let child =
            start(&mut command).unwrap_or_else(|error| panic!("{}: {error}", program().display()));
        self.child = Some(child);
        until("the proxy to accept connections", || {
            if let Some(status) =
                self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
            {
                panic!(
                    "the proxy ended at once with {status}:\n{}{}",
                    self.output(),
                    self.text("cache.log")
                );
            }
            TcpStream::connect(self.address).ok()
        })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of its configuration file.
    #[must_use]
    pub fn configuration(&self) -> String {
        self.path("squid.conf").display().to_string()
    }

    /// A path in its own directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file in its own directory; empty if there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        fs::read(self.path(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Its standard output and error.
    #[must_use]
    pub fn output(&self) -> String {
        self.text("output")
    }

    /// How often it has taken over a new configuration: on all cores, and with its directories.
    #[must_use]
    pub fn reconfigurations(&self) -> usize {
        self.text("cache.log").matches("Reconfigured, generation").count()
    }

    /// Waits until it has done so. A new answer before is that of one core.
    ///
    /// # Panics
    /// After [`LIMIT`].
    #[track_caller]
    pub fn wait_for_reconfigurations(&self, times: usize) {
        until("the new configuration", || (self.reconfigurations() >= times).then_some(()));
    }

    /// Takes over other configuration lines, and waits until that is done.
    ///
    /// # Panics
    /// After [`LIMIT`].
    #[track_caller]
    pub fn reconfigure(&self, lines: &str) {
        let before = self.reconfigurations();
        self.write_configuration("", lines);
        self.signal(Signal::HUP);
        self.wait_for_reconfigurations(before + 1);
    }

    /// Waits for a line of access.log that contains `part`, and returns it.
    ///
    /// # Panics
    /// After [`LIMIT`].
    #[must_use]
    pub fn logged(&self, part: &str) -> String {
        self.logged_times(part, 1).pop().unwrap_or_default()
    }

    /// Waits for `count` lines of access.log that contain `part`.
    ///
    /// # Panics
    /// After [`LIMIT`].
    #[must_use]
    pub fn logged_times(&self, part: &str, count: usize) -> Vec<String> {
        until(&format!("{count} lines with `{part}` in access.log"), || {
            let text = self.text("access.log");
            let lines: Vec<String> =
                text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }

    /// A connection to it.
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::to(self.address)
    }

    /// Its process id.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("a running proxy").id()
    }

    /// Its resident memory that no file stands behind, in bytes; 0 when it runs no more.
    #[must_use]
    pub fn anonymous_bytes(&self) -> usize {
        let id = self.child.as_ref().map_or(0, std::process::Child::id);
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
        kib.map_or(0, |kib: usize| kib * 1024)
    }

    /// The most of [`Proxy::anonymous_bytes`] while `work` is done.
    pub fn most_anonymous_bytes(&self, work: impl FnOnce()) -> usize {
        let (most, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _ending = Ending(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    most.fetch_max(self.anonymous_bytes(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            work();
        });
        most.into_inner()
    }

    /// Number of its open descriptors.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id())).expect("a running proxy").count()
    }

    /// A figure of its memory in KiB, as `/proc` calls it: `VmRSS` for what it has now, `VmHWM` for
    /// the most that it ever had.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn memory_kib(&self, name: &str) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.id())).expect("a running proxy");
        let figure = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = figure.and_then(|figure| figure.split_ascii_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("a number")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_end()
    }

    /// Ends it at once, as a crash would.
    ///
    /// A helper that it was about to start holds its ports until that helper's own program runs:
    /// clients of the next proxy on this port would end up there, so this waits for the ports as
    /// well.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait_end();
        until("the port to be given up", || {
            TcpStream::connect(self.address).is_err().then_some(())
        });
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait_end(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running proxy");
        until("the proxy to end", || child.try_wait().expect("its status"))
    }

    /// Ends it in order and starts it again on the same files.
    pub fn restart(&mut self) {
        self.stop();
        self.launch();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = std::time::Instant::now() + LIMIT;
        while matches!(child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        // A log may be a pipe, too.
        let log =
            if self.path("cache.log").is_file() { self.text("cache.log") } else { String::new() };
        let output = self.output();
        if std::thread::panicking() {
            eprintln!("--- cache.log\n{log}--- output\n{output}");
        } else {
            let panics =
                log.lines().chain(output.lines()).filter(|line| line.contains("panicked at "));
            assert_eq!(panics.collect::<Vec<_>>(), Vec::<&str>::new(), "faults of the program");
        }
    }
}
