//! The suite: its source, its tests, its server, and its client.

use super::verdict::{self, Answers, Test};
use crate::processes::{Running, free_address};
use crate::{Outcome, packages, workspace};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PACKAGE: &str = "http-cache-tests";

/// The release that continuous integration runs.
const RELEASE: &str = "0.4.5";

/// The program for Node, which is written into the temporary directory.
const DRIVER: &str = include_str!("driver.mjs");
const LOOPBACK: &str = include_str!("loopback.cjs");

/// Tests that the client runs at the same time; the release would take a hundred, which is a load
/// and no test.
const TESTS_AT_ONCE: usize = 25;

/// A whole run takes about a minute.
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// The suite exists in two forms, which share most of their tests' names; each has a list of its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Edition {
    /// From the package registry.
    Release,
    /// A checkout of its repository, which is newer.
    Checkout,
}

impl Edition {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Checkout => "repository",
        }
    }
}

/// A suite on disk, and its tests.
pub(super) struct Suite {
    pub(super) edition: Edition,
    /// Its name in the page.
    pub(super) title: String,
    pub(super) tests: Vec<Test>,
    node: PathBuf,
    /// Modules of the suite.
    server: PathBuf,
    runner: PathBuf,
    test_files: Vec<PathBuf>,
}

/// The tests that the client runs, and whether it shows the bytes.
pub(super) struct Wish<'a> {
    /// All if there are none.
    pub(super) ids: Option<&'a [String]>,
    pub(super) dump: bool,
}

impl Suite {
    /// The release, installed below the target directory unless it is there already.
    pub(super) fn release() -> Outcome<Self> {
        let folder = workspace::target_dir(&workspace::root())?.join("conformance").join(RELEASE);
        let found = folder.join("node_modules").join(PACKAGE);
        if !found.join("package.json").is_file() {
            install(&folder)?;
        }
        let tests = ["tests/index.mjs", "tests/surrogate-control.mjs"];
        let title = format!("`{PACKAGE}` {RELEASE}");
        Self::open(Edition::Release, title, &found, "", &tests)
    }

    /// A checkout of the suite's repository, with its dependencies installed.
    pub(super) fn checkout(folder: &Path, revision: Option<&str>) -> Outcome<Self> {
        let folder = std::path::absolute(folder)?;
        let title = match revision.map(str::to_owned).or_else(|| git_revision(&folder)) {
            Some(revision) => format!("the suite's repository at `{revision}`"),
            None => "a checkout of the suite's repository".to_owned(),
        };
        Self::open(Edition::Checkout, title, &folder, "test-engine", &["tests/index.mjs"])
    }

    fn open(
        edition: Edition,
        title: String,
        folder: &Path,
        engine: &str,
        tests: &[&str],
    ) -> Outcome<Self> {
        let node = packages::find("node").ok_or("node is not installed (Debian package nodejs)")?;
        let engine = folder.join(engine);
        let mut suite = Self {
            edition,
            title,
            tests: Vec::new(),
            node,
            server: engine.join("server/server.mjs"),
            runner: engine.join("client/runner.mjs"),
            test_files: tests.iter().map(|file| folder.join(file)).collect(),
        };
        for file in suite.test_files.iter().chain([&suite.server, &suite.runner]) {
            if !file.is_file() {
                return Err(format!(
                    "{} is not there: is this a checkout of the suite?",
                    file.display()
                )
                .into());
            }
        }
        let scratch = tempfile::tempdir()?;
        let list = suite.drive(scratch.path(), json!({}))?;
        suite.tests = verdict::read_tests(&list)?;
        Ok(suite)
    }

    /// Starts the suite's server on a port of its own.
    pub(super) fn start_server(&self, scratch: &Path) -> Outcome<(Running, SocketAddr)> {
        let address = free_address()?;
        let loopback = scratch.join("loopback.cjs");
        fs::write(&loopback, LOOPBACK)?;
        let mut command = Command::new(&self.node);
        command
            .current_dir(scratch)
            .arg("--no-warnings")
            .arg("--require")
            .arg(loopback)
            .arg(&self.server);
        command
            .env("npm_config_protocol", "http")
            .env("npm_config_port", address.port().to_string());
        command.env("npm_config_pidfile", scratch.join("server.pid"));
        let mut server = Running::start("the suite's server", &mut command, &server_log(scratch))?;
        server.wait_ready(address)?;
        Ok((server, address))
    }

    /// Runs the suite's client against whatever answers at `base`.
    pub(super) fn run(
        &self,
        scratch: &Path,
        base: SocketAddr,
        wish: &Wish<'_>,
    ) -> Outcome<Answers> {
        let plan = json!({
            "base": format!("http://{base}"),
            "runner": self.runner,
            "fetch": if self.edition == Edition::Release { Some("node-fetch") } else { None },
            "ids": wish.ids,
            "dump": wish.dump,
            "at_once": TESTS_AT_ONCE,
        });
        verdict::read_answers(&self.drive(scratch, plan)?)
    }

    /// Runs the driver and returns its results.
    fn drive(&self, scratch: &Path, mut plan: Value) -> Outcome<Value> {
        let driver = scratch.join("driver.mjs");
        fs::write(&driver, DRIVER)?;
        let out = scratch.join("out.json");
        plan["tests"] = json!(self.test_files);
        plan["out"] = json!(out);
        let mut command = Command::new(&self.node);
        command.current_dir(scratch).arg("--no-warnings").arg(driver).arg(plan.to_string());
        let mut client = Running::start("the suite's client", &mut command, &client_log(scratch))?;
        let status = client.wait_end(RUN_LIMIT)?;
        if !status.success() {
            let said = fs::read_to_string(client_log(scratch)).unwrap_or_default();
            return Err(format!("the suite's client: {status}\n{said}").into());
        }
        Ok(serde_json::from_slice(&fs::read(out)?)?)
    }
}

/// The output file of the suite's server and client.
pub(super) fn server_log(scratch: &Path) -> PathBuf {
    scratch.join("server.log")
}

pub(super) fn client_log(scratch: &Path) -> PathBuf {
    scratch.join("client.log")
}

fn install(folder: &Path) -> Outcome {
    let npm = packages::find("npm").ok_or("npm is not installed (Debian package npm)")?;
    println!("conformance: installing {PACKAGE} {RELEASE} into {}", folder.display());
    fs::create_dir_all(folder)?;
    let mut command = Command::new(npm);
    command.args([
        "install",
        "--loglevel=error",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
    ]);
    // Its own patience is more than a minute.
    command.args(["--fetch-retries=1", "--fetch-retry-mintimeout=2000", "--prefix"]);
    let status =
        command.arg(folder).arg(format!("{PACKAGE}@{RELEASE}")).current_dir(folder).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("npm cannot install {PACKAGE} {RELEASE} ({status}): is its registry there?")
            .into())
    }
}

/// The commit of a checkout, if it is a work tree of git's.
fn git_revision(folder: &Path) -> Option<String> {
    // Not that of a repository which happens to lie around it.
    if !folder.join(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let revision = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !revision.is_empty()).then_some(revision)
}
