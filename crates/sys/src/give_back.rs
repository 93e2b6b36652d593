//! Memory that is not needed any more, given back to the system: that of the start, and blocks
//! that threads have freed.

#![allow(unsafe_code, reason = "the allocator and the memory map are told by raw calls")]

use std::ffi::CStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::{fs, io};

use rustix::mm::{Advice, madvise};

/// What the allocator is told: the thread's own store of free blocks goes back to the arenas.
const FREED_BLOCKS: &CStr = c"thread.tcache.flush";

/// Besides, the free pages of all arenas (4096 stands for all) go back to the system.
const AT_ONCE: [&CStr; 2] = [FREED_BLOCKS, c"arena.4096.purge"];

/// The same of the pages whose time has come.
const BY_AGE: [&CStr; 2] = [FREED_BLOCKS, c"arena.4096.decay"];

/// Gives back the pages that the allocator keeps free. By itself it does so ten seconds after they
/// became free, and only when something is allocated then: an idle process never does.
pub fn give_free_pages_back() {
    tell_allocator(AT_ONCE);
}

/// Gives back those of them whose time has come: a busy process will need the others soon.
pub fn give_old_pages_back() {
    tell_allocator(BY_AGE);
}

fn tell_allocator<const N: usize>(commands: [&CStr; N]) {
    for command in commands {
        // SAFETY: the name is a C string; the commands take and return nothing. A failure
        // leaves everything as it was.
        _ = unsafe {
            tikv_jemalloc_sys::mallctl(command.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
        };
    }
}

/// The blocks that the calling thread has freed and keeps go back to the arenas that they are from.
/// For a thread that now and then frees many that others have allocated: it would keep some
/// megabytes of them.
pub fn give_freed_blocks_up() {
    tell_allocator([FREED_BLOCKS]);
}

/// From now on the calling thread keeps no blocks that it has freed: they go back to the arenas
/// that they are from. The allocator keeps up to 5 MB for each thread otherwise, and looks at them
/// only after megabytes of allocations, which a thread that waits for a disk makes in many seconds.
///
/// It is for threads that mostly wait; a core allocates too often for it. Returns whether the
/// thread kept such blocks until now.
pub fn keep_no_freed_blocks() -> bool {
    let (mut kept, mut keeps, mut bytes) = (false, false, size_of::<bool>());
    // SAFETY: the name is a C string; the command writes one `bool` and how long it is, and reads
    // one. A failure leaves everything as it was.
    _ = unsafe {
        let (kept, keeps) = ((&raw mut kept).cast(), (&raw mut keeps).cast());
        let name = c"thread.tcache.enabled".as_ptr();
        tikv_jemalloc_sys::mallctl(name, kept, &raw mut bytes, keeps, size_of::<bool>())
    };
    kept
}

/// Takes the program's own code and constants out of the memory of the process. They are in the
/// page cache still, and what is used comes back from there. What only the start has used, such as
/// the parser of the configuration, does not.
///
/// Does nothing where a page differs from the file: a debugger's breakpoints stay. Libraries stay
/// too, as another thread might be loading one.
///
/// # Errors
/// The map cannot be read, or the system keeps some pages; all others are gone then.
pub fn forget_program_pages() -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read("/proc/self/smaps")?;
    let relocated = relocated();
    let mut outcome = Ok(());
    for range in unchanged(&maps, program.as_os_str().as_bytes()) {
        if relocated.iter().any(|own| own.start < range.end && range.start < own.end) {
            continue;
        }
        // SAFETY: these pages can only be read, the loader has not written to them, and none
        // differs from the file: the next access reads the same bytes again.
        let forgotten = unsafe {
            madvise(
                std::ptr::with_exposed_provenance_mut(range.start),
                range.len(),
                Advice::LinuxDontNeed,
            )
        };
        if let Err(error) = forgotten {
            outcome = Err(error.into());
        }
    }
    outcome
}

/// The parts of the program that can only be read since the loader wrote addresses there
/// (`PT_GNU_RELRO`). They differ from the file, also where an emulated system says otherwise.
fn relocated() -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // SAFETY: the function calls back in this thread only, before it returns, and passes on the
    // pointer to `found`, which nothing else uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(note_relocated), (&raw mut found).cast()) };
    found
}

/// Notes the parts of one object, and ends with it: the program is the first.
unsafe extern "C" fn note_relocated(
    object: *mut libc::dl_phdr_info,
    _bytes: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the caller passes an object whose headers are as many as it says, and the pointer
    // that it got from `relocated`.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<Range<usize>>>()) };
    // SAFETY: as above.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_GNU_RELRO) {
        let start = (object.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        found.push(start..start.saturating_add(header.p_memsz as usize));
    }
    1
}

/// The parts of the program in a text as `/proc/self/smaps` has it that can only be read, and of
/// which some page is in memory, but none is the process's own, neither there nor in swap. A map
/// in which nothing is in memory is that of an emulator, which counts nothing.
fn unchanged(smaps: &[u8], program: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut candidate: Option<(Range<usize>, [bool; 3])> = None;
    for line in smaps.split(|&byte| byte == b'\n') {
        if let Some(mapping) = Mapping::parse(line) {
            let is_ours = mapping.path == program && mapping.is_read_only;
            candidate = is_ours.then_some((mapping.range, [false; 3]));
            continue;
        }
        let Some((range, [is_there, is_clean, is_unswapped])) = &mut candidate else { continue };
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (name, value) = (words.next(), words.next());
        let is_zero = value == Some(b"0");
        match name {
            Some(b"Rss:") => *is_there = value.is_some() && !is_zero,
            Some(b"Anonymous:") => *is_clean = is_zero,
            Some(b"Swap:") => *is_unswapped = is_zero,
            _ => continue,
        }
        if *is_there && *is_clean && *is_unswapped {
            found.push(range.clone());
            candidate = None;
        }
    }
    found
}

struct Mapping<'a> {
    range: Range<usize>,
    is_read_only: bool,
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// The first line of a mapping: range, permissions, offset, device, inode, path.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let range = std::str::from_utf8(words.next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        let permissions = words.next()?;
        let path = words.nth(3)?.trim_ascii();
        let is_read_only = matches!(permissions, b"r--p" | b"r-xp");
        Some(Self { range: address(start)?..address(end)?, is_read_only, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 7                    /usr/bin/a b
Size: 8 kB
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
3000-5000 r-xp 00002000 fe:00 7                    /usr/bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
5000-6000 r-xp 00004000 fe:00 7                    /usr/bin/a b
Rss:                   4 kB
Anonymous:             4 kB
Swap:                  0 kB
6000-7000 r--p 00005000 fe:00 7                    /usr/bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  4 kB
7000-8000 rw-p 00006000 fe:00 7                    /usr/bin/a b
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
8000-9000 r-xp 00000000 fe:00 8                    /usr/lib/libc.so.6
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
9000-a000 rw-p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
a000-b000 r--p 00006000 fe:00 7                    /usr/bin/a b
Rss:                   0 kB
Anonymous:             0 kB
Swap:                  0 kB
b000-c000 r--p 00006000 fe:00 7                    /usr/bin/a b
Anonymous:             0 kB
Swap:                  0 kB
";

    #[test]
    fn only_pages_that_are_as_in_the_file_are_forgotten() {
        assert_eq!(unchanged(SMAPS.as_bytes(), b"/usr/bin/a b"), [0x1000..0x3000, 0x3000..0x5000]);
        assert!(unchanged(SMAPS.as_bytes(), b"/usr/bin/a").is_empty());
        assert!(unchanged(b"nonsense\n\n1-", b"").is_empty());
    }

    /// With addresses that the loader writes.
    static NAMES: &[&str] = &["first", "second"];

    /// Resident pages of this program's code, in KiB.
    fn resident_kib() -> u64 {
        let program = fs::read_link("/proc/self/exe").unwrap();
        let program = program.to_str().unwrap();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines();
        let mut kib = 0;
        while lines.any(|line| line.contains(" r-xp ") && line.ends_with(program)) {
            let rss = lines.by_ref().find(|line| line.starts_with("Rss:")).unwrap();
            kib += rss.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
        kib
    }

    #[test]
    fn the_program_goes_on_with_fewer_pages() {
        let relocated = relocated();
        let names = std::hint::black_box(NAMES).as_ptr().addr();
        assert!(relocated.iter().any(|range| range.contains(&names)), "{relocated:?} {names:#x}");
        // Other tests may need pages again at once.
        let is_less = (0..20).any(|_| {
            let before = resident_kib();
            forget_program_pages().unwrap();
            resident_kib() < before
        });
        assert!(is_less, "not once in twenty times");
        assert_eq!(std::hint::black_box(NAMES), ["first", "second"], "what the loader wrote stays");
        assert!(vec![1, 2, 3].into_iter().map(|n| n * 2).eq([2, 4, 6]));
    }

    #[test]
    fn the_allocator_knows_the_commands() {
        for command in AT_ONCE.into_iter().chain(BY_AGE) {
            // SAFETY: as above.
            let failed = unsafe {
                tikv_jemalloc_sys::mallctl(command.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
            };
            assert_eq!(failed, 0, "{command:?}");
        }
        give_free_pages_back();
        give_old_pages_back();
        give_freed_blocks_up();
    }

    #[test]
    fn a_thread_keeps_no_freed_blocks_and_others_do() {
        let twice = || [keep_no_freed_blocks(), keep_no_freed_blocks()];
        let first = std::thread::spawn(twice).join().unwrap();
        let second = std::thread::spawn(twice).join().unwrap();
        assert_eq!([first, second], [[true, false]; 2]);
    }
}
