//! The surroundings of the page: a temporary directory, nginx, the proxy, and a shell for commands.

use crate::{Outcome, packages};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The name of the temporary directory in the page.
const PUBLIC_FOLDER: &str = "/tmp/first-run";

/// Ports that a reader would expect; others are taken where these are in use.
const PROXY_PORT: u16 = 3128;
const ORIGIN_PORT: u16 = 8080;

/// Longest time for one command, and for waiting for anything else.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
const WAIT_LIMIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Stage {
    proxy: Option<Child>,
    _origin: Server,
    proxy_address: SocketAddr,
    origin_address: SocketAddr,
    /// Removed last.
    folder: TempDir,
}

/// A child that ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut proxy) = self.proxy.take() {
            end(&mut proxy);
        }
    }
}

impl Stage {
    /// Makes the directory and starts nginx. `program` is the proxy.
    pub(super) fn set(program: &Path) -> Outcome<Self> {
        let folder = TempDir::with_prefix("first-run-")?;
        let open_to_all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), open_to_all)?;
        for name in ["bin", "site", "origin"] {
            fs::create_dir(folder.path().join(name))?;
        }
        symlink(program, folder.path().join("bin/humboldt"))?;
        let (proxy_address, origin_address) = (address(PROXY_PORT)?, address(ORIGIN_PORT)?);
        fs::write(folder.path().join("squid.conf"), configuration(proxy_address, folder.path()))?;
        fs::write(folder.path().join("site/hello.txt"), "Hello from nginx.\n")?;
        let origin = Server(start_nginx(folder.path(), origin_address)?);
        let stage = Self { proxy: None, _origin: origin, proxy_address, origin_address, folder };
        wait("nginx", || Ok(TcpStream::connect(origin_address).is_ok()))?;
        Ok(stage)
    }

    /// A path in the temporary directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and the directories above it.
    pub(super) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(fs::write(path, bytes)?)
    }

    /// Puts addresses into a command or a file.
    pub(super) fn fill(&self, text: &str) -> String {
        text.replace("{proxy}", &self.proxy_address.to_string())
            .replace("{origin}", &self.origin_address.to_string())
    }

    /// Text for the page: with another name for the temporary directory.
    pub(super) fn public(&self, text: &str) -> String {
        text.replace(&*self.folder.path().to_string_lossy(), PUBLIC_FOLDER)
    }

    /// Runs a command in the temporary directory; returns both of its outputs.
    pub(super) fn shell(&self, command: &str) -> Outcome<String> {
        let folder = self.folder.path().to_string_lossy();
        let output = File::create(self.path("output"))?;
        let mut child = self
            .clean("sh")
            .args(["-c", &command.replace(PUBLIC_FOLDER, &folder)])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let deadline = Instant::now() + COMMAND_LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                // Its own group: the shell and its children, nothing else.
                if let Some(group) = pid(&child) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                child.wait()?;
                return Err(format!("`{command}` takes longer than {COMMAND_LIMIT:?}").into());
            }
            std::thread::sleep(PAUSE);
        };
        let printed = String::from_utf8_lossy(&fs::read(self.path("output"))?).into_owned();
        if status.success() {
            Ok(printed)
        } else {
            Err(format!("`{command}`: {status}\n{printed}").into())
        }
    }

    /// A command with nothing of this user's settings, which might lead to other machines.
    fn clean(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.folder.path());
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.path("bin").display()));
        command.env("HOME", self.folder.path()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.env("PIP_CONFIG_FILE", "/dev/null");
        command
    }

    /// Starts the proxy and waits until it listens.
    pub(super) fn start_proxy(&mut self) -> Outcome {
        self.launch(&["-N", "-f", "squid.conf"])
    }

    /// Starts the proxy as a newcomer does, and returns the command for that.
    pub(super) fn start_without_configuration(&mut self) -> Outcome<String> {
        let port = self.proxy_address.port();
        if port == PROXY_PORT {
            self.launch(&[])?;
            return Ok("humboldt".to_owned());
        }
        self.launch(&["-a", &port.to_string()])?;
        Ok(format!("humboldt -a {port}"))
    }

    fn launch(&mut self, arguments: &[&str]) -> Outcome {
        let output = File::create(self.path("said"))?;
        let mut command = self.clean("humboldt");
        command.args(arguments);
        let child =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        self.proxy = Some(child);
        let address = self.proxy_address;
        wait("humboldt", || Ok(TcpStream::connect(address).is_ok()))
    }

    /// Waits until the proxy, which was told to stop, has ended with exit code 0.
    pub(super) fn wait_proxy_end(&mut self) -> Outcome {
        let Some(mut proxy) = self.proxy.take() else {
            return Err("humboldt is not running".into());
        };
        let mut status = None;
        let ended = wait("the end of humboldt", || {
            status = proxy.try_wait()?;
            Ok(status.is_some())
        });
        end(&mut proxy);
        ended?;
        match status {
            Some(status) if !status.success() => Err(format!("humboldt ends with {status}").into()),
            _ => Ok(()),
        }
    }

    /// Presses Ctrl-C, and returns what the proxy says to that.
    pub(super) fn interrupt_proxy(&mut self) -> Outcome<String> {
        let before = fs::read_to_string(self.path("said"))?.len();
        if let Some(pid) = self.proxy.as_ref().and_then(pid) {
            kill_process(pid, Signal::INT)?;
        }
        self.wait_proxy_end()?;
        let last_words = fs::read_to_string(self.path("said"))?.split_off(before);
        if last_words.is_empty() {
            return Err("humboldt says nothing when it is interrupted".into());
        }
        Ok(last_words)
    }

    /// Empties the log of nginx, for another proxy whose cache is empty.
    pub(super) fn forget_fetches(&self) -> Outcome {
        let log = File::options().write(true).open(self.path("origin/access.log"))?;
        Ok(log.set_len(0)?)
    }

    /// Waits until the proxy has said this, and returns everything it has said.
    pub(super) fn wait_said(&self, part: &str) -> Outcome<String> {
        wait(part, || Ok(fs::read_to_string(self.path("said"))?.contains(part)))?;
        Ok(fs::read_to_string(self.path("said"))?)
    }

    /// [`Stage::expect_codes_in`] the access.log of the page's configuration.
    pub(super) fn expect_codes(&self, part: &str, codes: &[&str]) -> Outcome {
        self.expect_codes_in("access.log", part, codes)
    }

    /// Waits until a log has lines with `part` that carry exactly these result codes, in any
    /// order. Lines are written a moment after the answer. Anything else would make the page's
    /// words wrong.
    pub(super) fn expect_codes_in(&self, log: &str, part: &str, codes: &[&str]) -> Outcome {
        let found = || -> Outcome<Vec<String>> {
            let text = fs::read_to_string(self.path(log))?;
            let lines = text.lines().filter(|line| line.contains(part));
            let code =
                |line: &str| Some(line.split_whitespace().nth(3)?.split('/').next()?.to_owned());
            Ok(lines.filter_map(code).collect())
        };
        wait(&format!("{} lines with {part} in {log}", codes.len()), || {
            Ok(found()?.len() >= codes.len())
        })?;
        let (mut found, mut wanted) = (found()?, codes.to_vec());
        found.sort_unstable();
        wanted.sort_unstable();
        if found == wanted {
            return Ok(());
        }
        Err(format!("{part}: the result codes are {found:?}, and should be {wanted:?}").into())
    }

    /// Fails unless nginx was asked exactly once for a path that ends in `part`.
    pub(super) fn expect_one_fetch(&self, part: &str) -> Outcome {
        let text = fs::read_to_string(self.path("origin/access.log"))?;
        // Not where it is only the Referer.
        let target = format!("{part} HTTP/1.1\"");
        match text.lines().filter(|line| line.contains(&target)).count() {
            1 => Ok(()),
            count => Err(format!("{part} was fetched {count} times, not once").into()),
        }
    }
}

/// The port if it is free, another one if not.
fn address(port: u16) -> Outcome<SocketAddr> {
    let listener =
        TcpListener::bind(("127.0.0.1", port)).or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    Ok(listener.local_addr()?)
}

fn configuration(listen: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "http_port {listen}\nvisible_hostname proxy.example\n\n\
         # This machine may use the proxy, and only for servers on this machine.\n\
         acl here dstdomain 127.0.0.1\nhttp_access allow localhost here\nhttp_access deny all\n\n\
         cache_mem 64 MB\nmaximum_object_size 100 MB\ncache_dir ring {folder}/store 512\n\n\
         access_log {folder}/access.log squid\ncache_log {folder}/cache.log\npid_filename {folder}/humboldt.pid\n\
         shutdown_lifetime 2 seconds\n"
    )
}

/// nginx as a plain file server whose answers are fresh for ten minutes; below `/slow/` it sends
/// slowly.
fn start_nginx(folder: &Path, listen: SocketAddr) -> Outcome<Child> {
    let program = packages::find("nginx").ok_or("nginx is not installed")?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let dir = folder.display();
    let text = format!(
        "{user} daemon off; pid {dir}/origin/pid; error_log {dir}/origin/error.log; worker_processes 1;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log {dir}/origin/access.log; server_tokens off; index index.html;\n\
         types {{ text/html html; text/css css; image/svg+xml svg; text/plain txt; }}\n\
         client_body_temp_path {dir}/origin/t1; proxy_temp_path {dir}/origin/t2; fastcgi_temp_path {dir}/origin/t3;\n\
         uwsgi_temp_path {dir}/origin/t4; scgi_temp_path {dir}/origin/t5;\n\
         add_header Cache-Control max-age=600;\n\
         server {{ listen {listen}; root {dir}/site; location /slow/ {{ limit_rate 128k; }} }} }}\n"
    );
    let configuration = folder.join("origin/nginx.conf");
    fs::write(&configuration, text)?;
    let output = File::create(folder.join("origin/output"))?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder.join("origin")).arg("-c").arg(configuration);
    Ok(command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?)
}

fn wait(what: &str, mut is_there: impl FnMut() -> Outcome<bool>) -> Outcome {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !is_there()? {
        if Instant::now() > deadline {
            return Err(format!("waited {WAIT_LIMIT:?} for {what}").into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Ends a child of ours by its id: gently, then not.
fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None))
        && let Some(pid) = pid(child)
    {
        let _ = kill_process(pid, Signal::TERM);
        let _ = wait("the end of a server", || Ok(child.try_wait()?.is_some()));
        let _ = child.kill();
        let _ = child.wait();
    }
}
