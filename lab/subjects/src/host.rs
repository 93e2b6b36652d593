//! The machine: its facts and its permissions.

use crate::SubjectError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of administrators' programs, which PATH of ordinary users lacks.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The files in which the machine shows its state; other places only in tests.
#[derive(Clone, Debug)]
pub struct Host {
    /// The mount point of procfs: `/proc`.
    pub proc: PathBuf,
    /// The mount point of sysfs: `/sys`.
    pub sys: PathBuf,
    /// Whether this process has root's rights.
    pub is_root: bool,
}

impl Host {
    /// This machine, with the rights of this process.
    #[must_use]
    pub fn current() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }
}

/// Something that was asked for and could not be done here, while the run still makes sense without
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The option.
    pub what: String,
    /// Why it was not done.
    pub reason: String,
}

impl Skipped {
    pub(crate) fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// A user whom a subject becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// The user of that name, `None` if there is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let uid = id(&["-u", "--", name])?.parse().ok()?;
        let gid = id(&["-g", "--", name])?.parse().ok()?;
        Some(Self { name: name.to_owned(), uid, gid })
    }

    /// The user whose rights this process has.
    pub(crate) fn current() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self { name: id(&["-un"]).unwrap_or_else(|| uid.to_string()), uid, gid }
    }
}

/// `id` asks everything that the machine's list of users consists of, not only a file.
fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first of these programs that exists. `$NAME` is the value of a variable of the environment;
/// a name with a slash is a path; any other is looked for beside this program, in PATH, and in the
/// folders of administrators' programs.
pub(crate) fn find_program<S: AsRef<str>>(names: &[S]) -> Option<PathBuf> {
    names.iter().find_map(|name| {
        let name = name.as_ref();
        if let Some(variable) = name.strip_prefix('$') {
            return std::env::var_os(variable).map(PathBuf::from).filter(|path| is_program(path));
        }
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|path| is_program(path));
        }
        program_folders().into_iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    })
}

fn program_folders() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()))
        .chain(ADMIN_FOLDERS.iter().map(PathBuf::from))
        .collect()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A program that the laboratory itself needs.
pub(crate) fn need_program(name: &str, package: &str) -> Result<PathBuf, SubjectError> {
    find_program(&[name]).ok_or_else(|| SubjectError::ProgramMissing {
        program: name.to_owned(),
        package: package.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_path_and_variable() {
        assert!(
            find_program(&["no-such-program-here", "sh"]).is_some_and(|path| path.ends_with("sh"))
        );
        assert_eq!(find_program(&["/bin/sh"]), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find_program(&["$NO_SUCH_VARIABLE_HERE"]), None);
        assert_eq!(find_program(&["/etc/passwd"]), None, "a file that cannot be run is no program");
        let error =
            need_program("no-such-program-here", "some-package").expect_err("it is missing");
        assert!(error.to_string().contains("apt install some-package"), "{error}");
    }

    #[test]
    fn users_have_numbers() {
        let root = User::named("root").expect("root is everywhere");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(User::named("no-such-user-here"), None);
        assert_eq!(User::current().uid, rustix::process::geteuid().as_raw());
    }
}
