//! The Debian packages that tests and benchmarks talk to: listed here, installed when missing.

use crate::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and the Debian package that brings it.
type Needed = (&'static str, &'static str);

/// Programs that `cargo xtask test` needs besides cargo.
const FOR_TESTS: [Needed; 25] = [
    ("cc", "build-essential"), // the allocator is C
    ("make", "build-essential"),
    ("ps", "procps"),
    ("curl", "curl"),
    ("htpasswd", "apache2-utils"),
    ("squid", "squid"),
    ("nginx", "nginx-light"),
    ("openssl", "openssl"),
    ("pip3", "python3-pip"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("chromium", "chromium"),
    ("varnishd", "varnish"),
    ("traffic_server", "trafficserver"),
    ("haproxy", "haproxy"),
    ("slapd", "slapd"),
    ("squidGuard", "squidguard"),
    ("krb5kdc", "krb5-kdc"),
    ("kadmin.local", "krb5-admin-server"),
    ("kinit", "krb5-user"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
];

/// Programs that the conformance suite needs; `cargo xtask test` lists them above.
const FOR_CONFORMANCE: [Needed; 2] = [("node", "nodejs"), ("npm", "npm")];

/// The caches that it can be run against beside Humboldt.
const PEERS: [Needed; 4] = [
    ("squid", "squid"),
    ("nginx", "nginx-light"),
    ("varnishd", "varnish"),
    ("traffic_server", "trafficserver"),
];

/// What `cargo xtask bench` needs; the caches to compare with are used if they are there.
const FOR_BENCHMARKS: [Needed; 1] = [("taskset", "util-linux")];

/// What `cargo xtask bench lab` compares the laboratory's users with.
const FOR_BENCH_LAB: [Needed; 1] = [("wrk", "wrk")];

/// What `cargo xtask testssl` has look at a port.
const FOR_TESTSSL: [Needed; 2] = [("testssl", "testssl.sh"), ("openssl", "openssl")];

/// What counts instructions for `cargo xtask bench instructions`.
const FOR_COUNTS: [Needed; 2] = [("valgrind", "valgrind"), ("setpriv", "util-linux")];

/// Debian asks this script before it starts a service that it has just installed.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

pub(crate) fn install_for_tests() -> Outcome {
    install(&FOR_TESTS)
}

pub(crate) fn install_for_benchmarks() -> Outcome {
    install(&FOR_BENCHMARKS)
}

pub(crate) fn install_for_bench_lab() -> Outcome {
    install(&FOR_BENCH_LAB)
}

pub(crate) fn install_for_counts() -> Outcome {
    install(&FOR_COUNTS)
}

pub(crate) fn install_for_testssl() -> Outcome {
    install(&FOR_TESTSSL)
}

pub(crate) fn install_for_conformance(with_peers: bool) -> Outcome {
    let peers: &[Needed] = if with_peers { &PEERS } else { &[] };
    install(&[&FOR_CONFORMANCE, peers].concat())
}

/// Finds a program in PATH and where Debian keeps servers, which is not in every user's PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/local/sbin", "/usr/sbin", "/sbin"]);
    folders.map(|folder| Path::new(folder).join(program)).find(|file| file.is_file())
}

fn install(needed: &[Needed]) -> Outcome {
    let mut missing: Vec<&str> = needed
        .iter()
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        println!("packages: all there");
        return Ok(());
    }
    let list = missing.join(" ");
    let become_root: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["sudo"] };
    if find("apt-get").is_none() || (!become_root.is_empty() && find("sudo").is_none()) {
        return Err(format!("these Debian packages are missing, install them first: {list}").into());
    }
    println!("packages: installing {list}");
    let held_services = become_root.is_empty() && hold_services()?;
    let outcome = apt_get(become_root, &["update", "-q"]).and_then(|()| {
        apt_get(
            become_root,
            &[&["install", "-q", "-y", "--no-install-recommends"], &*missing].concat(),
        )
    });
    if held_services {
        fs::remove_file(SERVICE_POLICY)?;
    }
    outcome.map_err(|error| format!("{error}; the packages needed are: {list}").into())
}

fn apt_get(become_root: &[&str], arguments: &[&str]) -> Outcome {
    let words: Vec<&str> =
        [become_root, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], arguments].concat();
    let status = Command::new(words[0]).args(&words[1..]).status()?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed", words.join(" ")).into()) }
}

/// Keeps an installed Squid from starting at once and taking port 3128. False if the machine has
/// its own policy.
fn hold_services() -> Outcome<bool> {
    if Path::new(SERVICE_POLICY).exists() {
        return Ok(false);
    }
    fs::write(SERVICE_POLICY, "#!/bin/sh\nexit 101\n")?;
    fs::set_permissions(SERVICE_POLICY, fs::Permissions::from_mode(0o755))?;
    Ok(true)
}
