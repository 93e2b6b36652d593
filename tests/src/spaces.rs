//! Networks of their own for tests: namespaces, and what runs in them.
//!
//! Needs root, `unshare`, `nsenter`, `ip`, `nft` and `curl`.

use crate::proxy::program;
use crate::skip;
use crate::wait::until;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs a test of the same program in a network of its own; says so where that is not possible.
///
/// # Panics
/// If the test fails.
pub fn in_a_namespace(test: &str) {
    let mut inside = Command::new("unshare");
    inside.arg("--net").arg(std::env::current_exe().expect("the path of this test"));
    // Built here, as that may take long.
    inside.env("HUMBOLDT_BIN", program());
    let output = match inside.args(["--exact", test, "--ignored"]).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("unshare: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let missing = ["unshare failed", "not there: "];
    if let Some(why) = text.lines().find(|line| missing.iter().any(|part| line.contains(part))) {
        return skip(why);
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A process of a namespace of its own; dropping it ends it.
pub struct Space(pub Child);

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

impl Space {
    /// A namespace with a process that does nothing.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "300"]).stdin(Stdio::null());
        let space = Self(command.spawn().expect("unshare starts"));
        let own = fs::read_link("/proc/self/ns/net").expect("this namespace");
        until("a namespace", || {
            let its = fs::read_link(format!("/proc/{}/ns/net", space.0.id())).ok()?;
            (its != own).then_some(())
        });
        space
    }

    /// nginx that listens there and answers everything with this text. It keeps its files in the
    /// folder. Returns when it can be reached from here.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn nginx(&self, folder: &Path, listen: &str, says: &str) -> Self {
        let settings = folder.join("nginx.conf");
        let dir = folder.display();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nerror_log {dir}/error.log;\n\
             events {{}}\nhttp {{\n  access_log off;\n\
             server {{ listen {listen}; location / {{ return 200 {says}; }} }}\n}}\n"
        );
        fs::write(&settings, text).expect("settings");
        let mut nginx = self.command("nginx");
        nginx.arg("-c").arg(&settings);
        nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nginx = nginx.spawn().unwrap_or_else(|error| panic!("not there: nginx: {error}"));
        let nginx = Self(nginx);
        until("nginx", || TcpStream::connect(listen).ok());
        nginx
    }

    /// A program that runs there.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), program]);
        command
    }

    /// Runs `ip` there with these words.
    pub fn run(&self, words: &str) {
        succeeds(self.command("ip").args(words.split(' ')));
    }

    /// What curl gets for these arguments: body, status and the first word of X-Cache.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn curl(&self, arguments: &str) -> String {
        let mut command = self.command("curl");
        command.args(["-sS", "-m", "10", "-w", " %{http_code} %header{x-cache}"]);
        let output = command.args(arguments.split(' ')).output().expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        text.split(" from ").next().unwrap_or_default().to_owned()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end.
///
/// # Panics
/// If it is not there, or fails.
pub fn succeeds(command: &mut Command) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("not there: {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    succeeds(Command::new("ip").args(words.split(' ')));
}

/// Sets the packet filter of this namespace.
///
/// # Panics
/// If the rules cannot be set.
pub fn set_filter(rules: &str) {
    let mut filter = Command::new("nft");
    filter.args(["-f", "-"]).stdin(Stdio::piped());
    let mut filter = filter.spawn().unwrap_or_else(|error| panic!("not there: nft: {error}"));
    let mut input = filter.stdin.take().expect("its input");
    input.write_all(rules.as_bytes()).expect("rules");
    drop(input);
    assert!(filter.wait().expect("nft ends").success(), "the rules of the packet filter");
}
