//! Real servers and tools from Debian packages.

use crate::proxy::{Proxy, open_folder};
use crate::wait::{end, free_address, start, until};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Finds a program in PATH and where Debian keeps servers.
///
/// # Panics
/// If it is not installed; `cargo xtask test` installs it.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not installed; `cargo xtask test` installs what the tests need")
    })
}

/// Runs a tool to its end.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    start(command)
        .and_then(Child::wait_with_output)
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a tool and returns its output.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A real server; dropping it ends it.
pub struct Server {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
    /// Its own directory; `site` in it is the root of its files.
    pub folder: TempDir,
}

impl Server {
    /// nginx serving the directory `site`, with `lines` in its `server` block.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn nginx(listen_options: &str, lines: &str) -> Self {
        let (address, folder) = (free_address(), open_folder());
        let dir = folder.path().display();
        fs::create_dir(folder.path().join("site")).expect("a directory to serve");
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let lines = lines.replace("{dir}", &dir.to_string());
        let text = format!(
            "{user} daemon off; pid {dir}/pid; error_log {dir}/error.log; worker_processes 1;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log {dir}/access.log; types {{ text/html html; text/css css; image/png png; }}\n\
             client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;\n\
             uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;\n\
             server {{ listen {address} {listen_options}; root {dir}/site; {lines} }} }}\n"
        );
        let configuration = folder.path().join("nginx.conf");
        fs::write(&configuration, text).expect("a configuration file");
        let mut command = Command::new(program("nginx"));
        command.arg("-p").arg(folder.path()).arg("-c").arg(configuration);
        Self::launch(&mut command, address, folder)
    }

    /// nginx with TLS and a certificate that it has just signed itself, in `cert.pem`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn nginx_tls() -> Self {
        let keys = open_folder();
        let (key, certificate) = (keys.path().join("key.pem"), keys.path().join("cert.pem"));
        succeed(
            Command::new(program("openssl"))
                .args([
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                ])
                .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
                .arg(&key)
                .arg("-out")
                .arg(&certificate),
        );
        let lines = format!(
            "ssl_certificate {}; ssl_certificate_key {};",
            certificate.display(),
            key.display()
        );
        let server = Self::nginx("ssl", &lines);
        fs::copy(&certificate, server.folder.path().join("cert.pem"))
            .expect("a copy of the certificate");
        server
    }

    /// Squid as a forward proxy that allows everyone, with these configuration lines.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn squid(lines: &str) -> Self {
        let (address, folder) = (free_address(), open_folder());
        let dir = folder.path().display();
        let text = format!(
            "http_port {address}\npid_filename {dir}/pid\naccess_log stdio:{dir}/access.log\ncache_log {dir}/cache.log\n\
             coredump_dir {dir}\nvisible_hostname squid.test\nshutdown_lifetime 0 seconds\n{lines}\nhttp_access allow all\n"
        );
        let configuration = folder.path().join("squid.conf");
        fs::write(&configuration, text).expect("a configuration file");
        let mut command = Command::new(program("squid"));
        // A service name of its own, because Squids of the same name share segments of memory.
        command
            .arg("-N")
            .arg("-n")
            .arg(format!("test{}", address.port()))
            .arg("-f")
            .arg(configuration);
        Self::launch(&mut command, address, folder)
    }

    fn launch(command: &mut Command, address: SocketAddr, folder: TempDir) -> Self {
        let output = fs::File::create(folder.path().join("output")).expect("a file for output");
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        let child = start(command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Self { child, address, folder };
        until("a server to accept connections", || {
            if let Ok(Some(status)) = server.child.try_wait() {
                panic!("{command:?} ended with {status}: {}", server.text("output"));
            }
            TcpStream::connect(address).ok()
        });
        server
    }

    /// A file in the server's directory; empty if there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Adds a file to nginx's site.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.path().join("site").join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("a directory to serve");
        }
        fs::write(path, bytes).expect("a file to serve");
    }

    /// The absolute URL of a path here.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Number of requests for a path in the server's log.
    #[must_use]
    pub fn count(&self, path: &str) -> usize {
        self.text("access.log").lines().filter(|line| line.contains(&format!(" {path} "))).count()
    }
}

/// curl, with this proxy.
#[must_use]
pub fn curl(proxy: &Proxy) -> Command {
    let mut command = Command::new(program("curl"));
    command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "", "--proxy"]);
    command.arg(format!("http://{}", proxy.address()));
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
