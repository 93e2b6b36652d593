//! The builds, the machine and the stores' ground of a run, so that no figure is without an origin.

use crate::Host;
use crate::command::run;
use crate::host::find_program;
use crate::machine::{after_colon, count, is_virtual};
use crate::store::mount_of;
use humboldt_lab_record::{Build, Machine, StoreGround};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for one question to the list of packages, or about the virtual machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Larger files are not read for their digest: no program is so large.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Bytes that are read at a time.
const PART_BYTES: usize = 1 << 16;

/// The unit of a block device's size in `/sys`, whatever its blocks.
const SECTOR_BYTES: u64 = 512;

/// The SHA-256 of some bytes, in 64 hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The SHA-256 of a file, in 64 hexadecimal digits; `None` if it cannot be read, or is larger than
/// 4 GB.
#[must_use]
pub fn sha256_of_file(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    digest(BufReader::with_capacity(PART_BYTES, file.take(FILE_BYTES_MAX))).ok()
}

fn digest(mut from: impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(hexadecimal(&digest.finalize())),
            Ok(length) => digest.update(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A program with this file that shows this line about its version.
#[must_use]
pub fn build_of(program: &Path, version: &str) -> Build {
    let real = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    Build {
        path: program.display().to_string(),
        sha256: sha256_of_file(&real).unwrap_or_default(),
        package: package_of(&[program, &real]),
        ..Build::of_version(version)
    }
}

/// The program of a process that runs already, by its folder in procfs. Asking it for its version
/// would mean to start it.
pub(crate) fn build_of_process(folder: &Path) -> Build {
    let link = folder.join("exe");
    let Ok(program) = fs::read_link(&link) else { return Build::default() };
    Build {
        path: program.display().to_string(),
        sha256: sha256_of_file(&link).unwrap_or_default(),
        package: package_of(&[&program]),
        ..Build::default()
    }
}

/// Debian's package that one of these paths is from, with its version.
fn package_of(paths: &[&Path]) -> Option<String> {
    let query = find_program(&["dpkg-query"])?;
    // The list may have a file by the path that it had before /bin became a link to /usr/bin.
    let before = paths.iter().filter_map(|path| path.strip_prefix("/usr").ok());
    let before: Vec<PathBuf> = before.map(|path| Path::new("/").join(path)).collect();
    let mut all = paths.iter().copied().chain(before.iter().map(PathBuf::as_path));
    let owner = all.find_map(|path| {
        let words = ["--search".as_ref(), path.as_os_str()];
        let answer = run(&query, words, ANSWER_WITHIN).ok()?;
        // `squid: /usr/sbin/squid`; a diversion has a line of its own, which names no package.
        let line = answer.lines().find(|line| !line.starts_with("diversion"))?;
        Some(line.split_once(": ")?.0.to_owned())
    })?;
    let words = ["--show", "--showformat", "${Package} ${Version}\n", &owner];
    let answer = run(&query, words, ANSWER_WITHIN).ok()?;
    answer.lines().next().map(ToOwned::to_owned)
}

/// The machine, as far as it decides figures.
#[must_use]
pub fn machine(host: &Host) -> Machine {
    let proc = |name: &str| fs::read_to_string(host.proc.join(name)).unwrap_or_default();
    let cpuinfo = proc("cpuinfo");
    let memory = after_colon(&proc("meminfo"), "MemTotal");
    let kilobytes = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let kernel = ["sys/kernel/osrelease", "sys/kernel/version"].map(proc);
    Machine {
        processor: after_colon(&cpuinfo, "model name").unwrap_or_default(),
        processors: u32::try_from(count(&cpuinfo, "processor")).unwrap_or(u32::MAX),
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        virtualization: virtualization(host, &cpuinfo),
        kernel: kernel.map(|text| text.trim().to_owned()).join(" ").trim().to_owned(),
    }
}

/// The virtual machine and the container: `kvm`, `kvm, docker`, `none`. systemd knows most of them;
/// without it, what the firmware and the hypervisor say.
fn virtualization(host: &Host, cpuinfo: &str) -> String {
    let detect = find_program(&["systemd-detect-virt"]);
    // It fails if the answer is `none`.
    let ask = |what: &str| run(detect.as_ref()?, [what], ANSWER_WITHIN).ok();
    let known: Vec<String> = ["--vm", "--container"]
        .iter()
        .filter_map(|what| ask(what))
        .map(|answer| answer.trim().to_owned())
        .filter(|answer| !answer.is_empty() && answer != "none")
        .collect();
    if !known.is_empty() {
        return known.join(", ");
    }
    let told = ["hypervisor/type", "class/dmi/id/product_name"].iter().find_map(|name| {
        let text = fs::read_to_string(host.sys.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    match told {
        _ if !is_virtual(cpuinfo) => "none".to_owned(),
        Some(name) => name,
        None => "a virtual machine of an unknown kind".to_owned(),
    }
}

/// The file system and the device that a folder is on.
pub(crate) fn ground(host: &Host, folder: &Path) -> StoreGround {
    let Some(mount) = mount_of(host, folder) else { return StoreGround::default() };
    let device = host.sys.join("dev/block").join(&mount.device_number);
    let read = |name: &str| {
        let text = fs::read_to_string(device.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // A partition has its queue in the folder of its disk.
    let rotates = read("queue/rotational").or_else(|| read("../queue/rotational"));
    StoreGround {
        file_system: mount.name,
        mount_options: format!("{}; {}", mount.options, mount.more),
        device: mount.source,
        rotates: rotates.map(|answer| answer != 0),
        device_bytes: read("size").map(|sectors| sectors.saturating_mul(SECTOR_BYTES)),
        image: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-4, "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "abc").expect("a file");
        assert_eq!(sha256_of_file(&file).as_deref(), Some(abc));
        assert_eq!(sha256_of_file(&folder.path().join("none")), None);
        let build = build_of(&file, "Humboldt Cache: Version 0.1.0 (commit 0123456)");
        assert_eq!((build.sha256.as_str(), build.commit.as_deref()), (abc, Some("0123456")));
        assert_eq!(build.package, None);
    }

    #[test]
    fn a_program_of_the_system_has_its_package_and_this_process_its_file() {
        if find_program(&["dpkg-query"]).is_some() {
            let program = find_program(&["ls"]).expect("ls");
            let package = build_of(&program, "").package.expect("a package");
            assert!(package.starts_with("coreutils "), "{package}");
        }
        let own = build_of_process(Path::new("/proc/self"));
        let file = std::env::current_exe().expect("this program");
        assert_eq!(own.path, file.display().to_string());
        assert_eq!(Some(own.sha256), sha256_of_file(&file));
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        fs::create_dir_all(proc.join("self")).expect("a folder");
        let mounts = "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw,discard\n";
        fs::write(proc.join("self/mountinfo"), mounts).expect("a table of mounts");
        let disk = sys.join("devices/sda");
        fs::create_dir_all(disk.join("queue")).expect("a folder");
        fs::write(disk.join("queue/rotational"), "1\n").expect("a file");
        fs::create_dir_all(disk.join("sda1")).expect("a folder");
        fs::write(disk.join("sda1/size"), "2048\n").expect("a file");
        fs::create_dir_all(sys.join("dev/block")).expect("a folder");
        std::os::unix::fs::symlink(disk.join("sda1"), sys.join("dev/block/8:1")).expect("a link");
        let host = Host { proc, sys, is_root: false };
        let found = ground(&host, Path::new("/srv/cache"));
        assert_eq!((found.rotates, found.device_bytes), (Some(true), Some(1 << 20)));
        assert_eq!(found.file_system, "ext4");
        assert_eq!(found.mount_options, "rw,relatime; rw,discard");
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine(&Host::current());
        assert!(machine.processors > 0 && machine.memory_bytes > 0, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.virtualization.is_empty(), "{machine:?}");
    }
}
