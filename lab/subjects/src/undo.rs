//! The laboratory's changes of a machine, described by their undoing. The laboratory undoes them
//! itself in the end; the keeper does if the laboratory cannot any more. Both do it here.
//!
//! An undo is told to the keeper before the deed, so each must be harmless when the deed was never
//! done.

use crate::command::run;
use crate::host::find_program;
use crate::processes::Tree;
use crate::{Host, ipc};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The beginning of names of folders that may be removed with all their contents.
pub(crate) const OWN_PREFIX: &str = "humboldt-lab-";
/// How long a file system or a group may be busy after its last user has ended.
const BUSY_WITHIN: Duration = Duration::from_secs(10);
/// Time for umount to write dirty data.
const UMOUNT_WITHIN: Duration = Duration::from_secs(120);
/// Time between two looks of a wait.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One thing to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// End the processes of a subject, and remove their queues and shared memory.
    End {
        /// Its mark.
        mark: String,
        /// Its first process, once it has started.
        root: Option<i32>,
        /// Numbers of all its processes so far.
        pids: BTreeSet<i32>,
        /// Time for it to end by itself, in ms.
        patience_ms: u64,
    },
    /// Unmount the file system there.
    Unmount(PathBuf),
    /// Detach loop devices from this image.
    Detach(PathBuf),
    /// Write this text into that file: its former contents.
    Write(PathBuf, String),
    /// Write this value into the file `former`, if the file `own` still is as we have set it:
    /// whoever has changed it since then wants that.
    WriteBack {
        /// The file that was changed.
        own: PathBuf,
        /// What was written into it.
        is: String,
        /// The file that held before, perhaps the same.
        former: PathBuf,
        /// Its former contents.
        value: String,
    },
    /// Remove a control group.
    RemoveGroup(PathBuf),
    /// Remove a folder of ours with all that is in it.
    RemoveFolder(PathBuf),
    /// Remove files in a folder whose names begin so.
    RemoveFiles(PathBuf, String),
}

impl Undo {
    /// Does it. Repeating it does no harm.
    pub(crate) fn perform(&self, host: &Host) -> Result<(), String> {
        match self {
            Self::End { mark, root, pids, patience_ms } => {
                let mut tree = Tree::new(&host.proc, Some(mark), *root);
                let ended = tree.end(Duration::from_millis(*patience_ms), || {});
                ipc::remove_made_by(&host.proc, &pids.union(tree.ever()).copied().collect());
                ended.map(|_| ())
            }
            Self::Unmount(path) => unmount(host, path),
            Self::Detach(image) => detach(host, image),
            Self::Write(file, value) => write(file, value),
            Self::WriteBack { own, is, former, value } => match fs::read_to_string(own) {
                Ok(now) if now.trim() == is => write(former, value),
                _ => Ok(()),
            },
            Self::RemoveGroup(path) => patiently(|| match fs::remove_dir(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(format!("cannot remove the control group {}: {error}", path.display()))
                }
                _ => Ok(()),
            }),
            Self::RemoveFolder(path) => remove_folder(host, path),
            Self::RemoveFiles(folder, prefix) => {
                remove_files(folder, prefix);
                Ok(())
            }
        }
    }

    /// As words without blanks, for the line to the keeper.
    pub(crate) fn to_line(&self) -> String {
        let path = |path: &Path| quote(path.as_os_str().as_bytes());
        match self {
            Self::End { mark, root, pids, patience_ms } => {
                let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
                let (mark, root) = (quote(mark.as_bytes()), root.unwrap_or(0));
                format!("end {mark} {root} {patience_ms} {}", pids.join(","))
            }
            Self::Unmount(mounted) => format!("umount {}", path(mounted)),
            Self::Detach(image) => format!("detach {}", path(image)),
            Self::Write(file, value) => format!("write {} {}", path(file), quote(value.as_bytes())),
            Self::WriteBack { own, is, former, value } => {
                let [is, value] = [is, value].map(|text| quote(text.as_bytes()));
                format!("back {} {is} {} {value}", path(own), path(former))
            }
            Self::RemoveGroup(group) => format!("rmdir {}", path(group)),
            Self::RemoveFolder(folder) => format!("remove {}", path(folder)),
            Self::RemoveFiles(folder, prefix) => {
                format!("forget {} {}", path(folder), quote(prefix.as_bytes()))
            }
        }
    }

    /// Reads a line of [`Undo::to_line`].
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.trim_end_matches('\n').split(' ').collect();
        let text = |index: usize| String::from_utf8(unquote(words.get(index)?)?).ok();
        let path = |index: usize| {
            Some(PathBuf::from(OsString::from_vec(unquote(words.get(index)?)?)))
                .filter(|path| path.is_absolute())
        };
        Some(match (*words.first()?, words.len()) {
            ("end", 5) => Self::End {
                mark: text(1).filter(|mark| !mark.is_empty())?,
                root: Some(words[2].parse().ok()?).filter(|&root| root > 1),
                patience_ms: words[3].parse().ok()?,
                pids: words[4].split(',').filter_map(|pid| pid.parse().ok()).collect(),
            },
            ("umount", 2) => Self::Unmount(path(1)?),
            ("detach", 2) => Self::Detach(path(1)?),
            ("write", 3) => Self::Write(path(1)?, text(2)?),
            ("back", 5) => {
                Self::WriteBack { own: path(1)?, is: text(2)?, former: path(3)?, value: text(4)? }
            }
            ("rmdir", 2) => Self::RemoveGroup(path(1)?),
            ("remove", 2) => Self::RemoveFolder(path(1)?),
            ("forget", 3) => {
                Self::RemoveFiles(path(1)?, text(2).filter(|prefix| !prefix.is_empty())?)
            }
            _ => return None,
        })
    }
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    match fs::write(file, value) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot write `{value}` to {}: {error}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Bytes that would end a word or a line, as `%XX`.
fn quote(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unquote(word: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    Some(out)
}

/// Tries again while something is busy.
fn patiently(mut deed: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let deadline = Instant::now() + BUSY_WITHIN;
    loop {
        match deed() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            result => return result,
        }
    }
}

/// The mount points, in the order of mounting.
pub(crate) fn mount_points(host: &Host) -> Vec<PathBuf> {
    let mounts = fs::read(host.proc.join("self/mountinfo")).unwrap_or_default();
    mounts
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .map(|point| PathBuf::from(OsString::from_vec(unescape_mount(point))))
        .collect()
}

/// The kernel writes blanks and backslashes in paths as three octal digits.
fn unescape_mount(escaped: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = escaped;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

fn unmount(host: &Host, path: &Path) -> Result<(), String> {
    patiently(|| {
        if !mount_points(host).iter().any(|point| point == path) {
            return Ok(());
        }
        let program =
            find_program(&["umount"]).ok_or("umount is not installed (package `mount`)")?;
        run(&program, [path], UMOUNT_WITHIN).map(|_| ()).map_err(|error| error.to_string())
    })
}

/// Loop devices on this image, such as `/dev/loop3`.
pub(crate) fn loop_devices_of(host: &Host, image: &Path) -> Vec<PathBuf> {
    let Ok(blocks) = fs::read_dir(host.sys.join("block")) else { return Vec::new() };
    let has_image = |folder: &Path| {
        fs::read(folder.join("loop/backing_file"))
            .is_ok_and(|backing| backing.strip_suffix(b"\n") == Some(image.as_os_str().as_bytes()))
    };
    blocks
        .flatten()
        .filter(|block| has_image(&block.path()))
        .map(|block| Path::new("/dev").join(block.file_name()))
        .collect()
}

fn detach(host: &Host, image: &Path) -> Result<(), String> {
    patiently(|| {
        let devices = loop_devices_of(host, image);
        if devices.is_empty() {
            return Ok(());
        }
        let program =
            find_program(&["losetup"]).ok_or("losetup is not installed (package `mount`)")?;
        for device in devices {
            let arguments = ["-d".as_ref(), device.as_os_str()];
            run(&program, arguments, BUSY_WITHIN).map_err(|error| error.to_string())?;
        }
        // A device that is still in use is detached only when it is closed.
        if loop_devices_of(host, image).is_empty() {
            Ok(())
        } else {
            Err(format!("{} is still in use by a loop device", image.display()))
        }
    })
}

/// Only folders that bear our name, and none in which something is still mounted: that would empty
/// the mounted one.
fn remove_folder(host: &Host, path: &Path) -> Result<(), String> {
    let is_ours = path.is_absolute()
        && path.file_name().is_some_and(|name| name.as_bytes().starts_with(OWN_PREFIX.as_bytes()));
    if !is_ours {
        return Err(format!("{} is no folder of the laboratory, and stays", path.display()));
    }
    if let Some(point) = mount_points(host).into_iter().find(|point| point.starts_with(path)) {
        return Err(format!(
            "{} stays: something is mounted at {}",
            path.display(),
            point.display()
        ));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn remove_files(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            // Another clean-up may have been faster.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_meant() {
        let end = |root, pids: &[i32]| Undo::End {
            mark: "lab 1".to_owned(),
            root,
            pids: pids.iter().copied().collect(),
            patience_ms: 5000,
        };
        for undo in [
            end(Some(77), &[77, 78]),
            end(None, &[]),
            Undo::Unmount(PathBuf::from("/a b/c\n%d")),
            Undo::Detach(PathBuf::from(OsString::from_vec(b"/image\xff".to_vec()))),
            Undo::Write(PathBuf::from("/sys/x"), "7:0 0".to_owned()),
            Undo::WriteBack {
                own: PathBuf::from("/proc/a b"),
                is: "1048576".to_owned(),
                former: PathBuf::from("/proc/c"),
                value: "20".to_owned(),
            },
            Undo::RemoveGroup(PathBuf::from("/sys/fs/cgroup/ä")),
            Undo::RemoveFolder(PathBuf::from("/tmp/humboldt-lab-1")),
            Undo::RemoveFiles(PathBuf::from("/dev/shm"), "lab1-".to_owned()),
        ] {
            let line = undo.to_line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Undo::from_line(&format!("{line}\n")), Some(undo), "{line}");
        }
    }

    #[test]
    fn wrong_lines_are_nothing() {
        for line in [
            "",
            "remove",
            "remove tmp",
            "end  5 5 ",
            "end x y 5 ",
            "umount /a /b",
            "forget /tmp ",
            "remove /%4",
        ] {
            assert_eq!(Undo::from_line(line), None, "{line}");
        }
        let root_is_none = Undo::from_line("end x 1 5 ").expect("a right line");
        assert!(matches!(root_is_none, Undo::End { root: None, .. }), "never the first process");
    }

    #[test]
    fn only_our_own_value_is_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let [own, former] = ["bytes", "ratio"].map(|name| folder.path().join(name));
        let undo = Undo::WriteBack {
            own: own.clone(),
            is: "1048576".to_owned(),
            former: former.clone(),
            value: "20".to_owned(),
        };
        for (now, is_back) in [("1048576\n", true), ("8388608\n", false), ("0\n", false)] {
            fs::write(&own, now).expect("a file");
            fs::write(&former, "0").expect("a file");
            assert_eq!(undo.perform(&Host::current()), Ok(()));
            let found = fs::read_to_string(&former).expect("the file");
            assert_eq!(found, if is_back { "20" } else { "0" }, "{now}");
        }
    }

    #[test]
    fn only_own_folders_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let host = Host::current();
        let foreign = parent.path().join("precious");
        let own = parent.path().join(format!("{OWN_PREFIX}1"));
        for folder in [&foreign, &own] {
            fs::create_dir_all(folder.join("inner")).expect("a folder");
        }
        let error = Undo::RemoveFolder(foreign.clone()).perform(&host).expect_err("not ours");
        assert!(error.contains("stays"), "{error}");
        assert!(foreign.exists());
        for _ in 0..2 {
            assert_eq!(Undo::RemoveFolder(own.clone()).perform(&host), Ok(()));
        }
        assert!(!own.exists());
    }

    #[test]
    fn a_folder_with_a_mount_inside_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = parent.path().join(format!("{OWN_PREFIX}1"));
        fs::create_dir_all(&own).expect("a folder");
        fs::create_dir_all(parent.path().join("self")).expect("a folder");
        let line = format!("1 2 7:0 / {}/a\\040b rw - ext4 /dev/loop0 rw\n", own.display());
        fs::write(parent.path().join("self/mountinfo"), line).expect("a table of mounts");
        let host = Host { proc: parent.path().to_path_buf(), ..Host::current() };
        let error =
            Undo::RemoveFolder(own.clone()).perform(&host).expect_err("something is mounted");
        assert!(error.contains("a b"), "{error}");
        assert!(own.exists());
    }

    #[test]
    fn only_files_with_the_prefix_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["lab1-a", "lab1-b", "lab12-a", "other"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let undo = Undo::RemoveFiles(folder.path().to_path_buf(), "lab1-".to_owned());
        assert_eq!(undo.perform(&Host::current()), Ok(()));
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("the folder")
            .flatten()
            .map(|entry| entry.file_name().into_string().expect("plain names"))
            .collect();
        left.sort();
        assert_eq!(left, ["lab12-a", "other"]);
    }
}
