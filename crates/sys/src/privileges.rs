//! Giving up root for good (`cache_effective_user`, `cache_effective_group`).

use std::ffi::{CStr, CString};
use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};

/// Longest entry of the user or group database that is read, in bytes.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Why privileges were not dropped. All are fatal: do not go on as root.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The user database has no such user.
    #[error("there is no user \"{0}\"")]
    NoSuchUser(String),
    /// The group database has no such group.
    #[error("there is no group \"{0}\"")]
    NoSuchGroup(String),
    /// A system call was refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The calls succeeded, and yet root can be regained.
    #[error("privileges could be regained after dropping them")]
    NotDropped,
}

/// A user and groups that a process can become.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that this process acts as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Looks up a user, and its group unless `group` names another. Either may be a number.
pub fn find(user: &str, group: Option<&str>) -> Result<Identity, PrivilegeError> {
    let (uid, own_gid) = find_user(user)?;
    let gid = match group {
        Some(group) => find_group(group)?,
        None => own_gid.ok_or_else(|| PrivilegeError::NoSuchUser(user.into()))?,
    };
    Ok(Identity { uid, gid })
}

/// Becomes `user` for good, with the groups of that user, or with `group` alone when it is given.
/// All threads of the process change. Afterwards it is checked that root cannot be regained.
///
/// With `keep_net_admin` this thread, and those that it starts from then on, keep CAP_NET_ADMIN:
/// connecting from the addresses of clients and netfilter marks need it.
///
/// Call it as root, after ports below 1024 are bound and logs are opened.
pub fn drop_to(
    user: &str,
    group: Option<&str>,
    keep_net_admin: bool,
) -> Result<Identity, PrivilegeError> {
    let identity = find(user, group)?;
    if keep_net_admin {
        refused("keep CAP_NET_ADMIN", set_keep_capabilities(true))?;
    }
    match (group, CString::new(user)) {
        (None, Ok(name)) => init_groups(&name, identity.gid)?,
        _ => set_groups(identity.gid)?,
    }
    set_ids(identity)?;
    if keep_net_admin {
        refused("keep CAP_NET_ADMIN", keep_net_admin_alone())?;
    }
    if can_regain(identity) {
        return Err(PrivilegeError::NotDropped);
    }
    Ok(identity)
}

/// Gives up all capabilities but one.
fn keep_net_admin_alone() -> rustix::io::Result<()> {
    let kept = CapabilitySet::NET_ADMIN;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })?;
    set_keep_capabilities(false)
}

fn refused(what: &'static str, result: rustix::io::Result<()>) -> Result<(), PrivilegeError> {
    result.map_err(|source| PrivilegeError::Refused { what, source: source.into() })
}

/// User number and, if the user is in the database, its group.
fn find_user(user: &str) -> Result<(u32, Option<u32>), PrivilegeError> {
    let missing = || PrivilegeError::NoSuchUser(user.into());
    let name = CString::new(user).map_err(|_| missing())?;
    match user_entry(&name) {
        Some((uid, gid)) => Ok((uid, Some(gid))),
        None => Ok((user.parse().map_err(|_| missing())?, None)),
    }
}

fn find_group(group: &str) -> Result<u32, PrivilegeError> {
    let missing = || PrivilegeError::NoSuchGroup(group.into());
    let name = CString::new(group).map_err(|_| missing())?;
    group_entry(&name).map_or_else(|| group.parse().map_err(|_| missing()), Ok)
}

/// Calls one of the `get…nam_r` functions with a buffer that grows until the entry fits. `call`
/// returns the error number and the fields wanted.
fn with_growing_buffer<T>(call: impl Fn(&mut [libc::c_char]) -> (i32, Option<T>)) -> Option<T> {
    let mut bytes = 1024;
    while bytes <= ENTRY_BYTES_MAX {
        match call(&mut vec![0; bytes]) {
            (libc::ERANGE, _) => bytes *= 4,
            (_, found) => return found,
        }
    }
    None
}

#[allow(unsafe_code)]
fn user_entry(name: &CStr) -> Option<(u32, u32)> {
    with_growing_buffer(|buffer| {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live memory of the sizes given; `found` is null or points to
        // `entry`, which is filled in then.
        unsafe {
            let (chars, len) = (buffer.as_mut_ptr(), buffer.len());
            let error = libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), chars, len, &mut found);
            (error, found.as_ref().map(|entry| (entry.pw_uid, entry.pw_gid)))
        }
    })
}

#[allow(unsafe_code)]
fn group_entry(name: &CStr) -> Option<u32> {
    with_growing_buffer(|buffer| {
        let mut entry = std::mem::MaybeUninit::<libc::group>::zeroed();
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user_entry`.
        unsafe {
            let (chars, len) = (buffer.as_mut_ptr(), buffer.len());
            let error = libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), chars, len, &mut found);
            (error, found.as_ref().map(|entry| entry.gr_gid))
        }
    })
}

fn check(what: &'static str, result: i32) -> Result<(), PrivilegeError> {
    match result {
        0 => Ok(()),
        _ => Err(PrivilegeError::Refused { what, source: io::Error::last_os_error() }),
    }
}

#[allow(unsafe_code)]
fn init_groups(user: &CStr, gid: u32) -> Result<(), PrivilegeError> {
    // SAFETY: `user` is a C string that lives through the call.
    check("set the user's groups", unsafe { libc::initgroups(user.as_ptr(), gid) })
}

#[allow(unsafe_code)]
fn set_groups(gid: u32) -> Result<(), PrivilegeError> {
    // SAFETY: one element is passed, and one exists.
    check("set the groups", unsafe { libc::setgroups(1, &gid) })
}

/// The C library's calls, not the bare system calls: they change every thread.
#[allow(unsafe_code)]
fn set_ids(identity: Identity) -> Result<(), PrivilegeError> {
    let Identity { uid, gid } = identity;
    // SAFETY: numbers only.
    check("set the group", unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: numbers only.
    check("set the user", unsafe { libc::setresuid(uid, uid, uid) })
}

/// Tries to become root again.
#[allow(unsafe_code)]
fn can_regain(identity: Identity) -> bool {
    let Identity { uid, gid } = identity;
    // SAFETY: numbers only.
    uid != 0 && unsafe { libc::setuid(0) == 0 || (gid != 0 && libc::setgid(0) == 0) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        assert_eq!(find("root", None).expect("root"), Identity { uid: 0, gid: 0 });
        assert_eq!(find("4242", Some("4243")).expect("numbers"), Identity { uid: 4242, gid: 4243 });
        assert!(matches!(find("no-such-user", None), Err(PrivilegeError::NoSuchUser(_))));
        assert!(
            matches!(find("4242", None), Err(PrivilegeError::NoSuchUser(_))),
            "whose group is unknown"
        );
        assert!(matches!(find("root", Some("no-such-group")), Err(PrivilegeError::NoSuchGroup(_))));
        assert!(matches!(find("a\0b", None), Err(PrivilegeError::NoSuchUser(_))));
    }

    /// Run by the test below in a process of its own.
    #[test]
    fn child_drops_privileges() {
        if std::env::var_os("HUMBOLDT_TEST_DROP").is_none() {
            return;
        }
        let keeps = std::env::var_os("HUMBOLDT_TEST_KEEP").is_some();
        let dropped = drop_to("nobody", None, keeps);
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
        let ids: Vec<_> = status
            .lines()
            .filter(|l| {
                ["Uid:", "Gid:", "CapE", "CapP", "CapI"].iter().any(|name| l.starts_with(name))
            })
            .collect();
        println!("dropped={dropped:?} {ids:?} root={}", is_root());
    }

    #[test]
    fn root_becomes_nobody_and_anyone_else_is_refused() {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "privileges::tests::child_drops_privileges", "--nocapture"])
            .env("HUMBOLDT_TEST_DROP", "1")
            .output()
            .expect("run");
        let text = String::from_utf8(output.stdout).expect("text");
        if is_root() {
            let nobody = find("nobody", None).expect("nobody");
            let ids = |n: u32| format!("{n}\\t{n}\\t{n}\\t{n}");
            assert!(text.contains(&format!("Uid:\\t{}", ids(nobody.uid))), "{text}");
            assert!(text.contains(&format!("Gid:\\t{}", ids(nobody.gid))), "{text}");
            assert!(text.contains("root=false"), "{text}");
        } else {
            assert!(text.contains("dropped=Err(Refused"), "{text}");
        }
    }

    #[test]
    fn of_all_capabilities_only_the_one_that_is_asked_for_is_kept() {
        if !is_root() {
            return;
        }
        for (keeps, wanted) in [(false, "0000000000000000"), (true, "0000000000001000")] {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "privileges::tests::child_drops_privileges", "--nocapture"]);
            command.env("HUMBOLDT_TEST_DROP", "1");
            if keeps {
                command.env("HUMBOLDT_TEST_KEEP", "1");
            }
            let text = String::from_utf8(command.output().expect("run").stdout).expect("text");
            for set in ["CapEff", "CapPrm"] {
                assert!(text.contains(&format!("{set}:\\t{wanted}")), "{keeps} {text}");
            }
            assert!(text.contains("CapInh:\\t0000000000000000"), "{text}");
            assert!(text.contains("root=false"), "{text}");
        }
    }
}
