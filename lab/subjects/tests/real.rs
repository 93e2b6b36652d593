//! Real caches, real devices, a laboratory that is really killed. What is not installed, or needs
//! root, is skipped, and says so.
#![allow(clippy::print_stderr, reason = "a skipped test says so where the test runner shows it")]

#[path = "real/limits.rs"]
mod limits;
mod support;

use humboldt_lab_subjects::{
    DiskSpeed, Environment, EnvironmentPlan, Host, Mode, StartPlan, StoreKind, SubjectError,
    SubjectFile, Throttle, attach, manifest, start,
};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{
    Origin, exchange, few_folders, hold_program, keeper, left_in_the_kernel, plan, processes_of,
    start_plan, traces_of, traces_with, until,
};

/// A subject that is installed here.
fn installed(name: &str) -> Option<SubjectFile> {
    let file = SubjectFile::builtin(name).expect("a family").expect("a right file");
    match file.find() {
        Ok(_) => Some(file),
        Err(error) => {
            eprintln!("skipped {name}: {error}");
            None
        }
    }
}

fn is_root(what: &str) -> bool {
    let is_root = Host::current().is_root;
    if !is_root {
        eprintln!("skipped {what}: needs root");
    }
    is_root
}

/// Starts it, asks three times, stops it: once from the origin, once from the store, once from the
/// origin again because of `no-cache`.
fn serves_from_its_store(name: &str, mode: Mode) {
    let Some(file) = installed(name) else { return };
    let origin = Origin::start();
    let keeper = keeper();
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let start_plan =
        StartPlan { mode: Some(mode), words: few_folders(name), ..start_plan(&origin) };
    let mut running = match start(&file, &mut environment, &start_plan, &keeper) {
        Err(error) if error.to_string().contains("does not have the storage scheme yet") => {
            eprintln!("skipped {name}: {error}");
            return;
        }
        result => result.unwrap_or_else(|error| panic!("{name}: {error}")),
    };
    let path = format!("/object-of-{}", name.replace(':', "-"));
    let ask =
        |fields: &str| exchange(running.address(), running.mode(), origin.address(), &path, fields);
    let first = ask("");
    assert!(
        first.starts_with("HTTP/1.1 200") && first.ends_with(&Origin::body(&path)),
        "{name}: {first}"
    );
    until("the answer to come from the store", || {
        let before = origin.asked(&path);
        assert!(ask("").ends_with(&Origin::body(&path)), "{name}");
        (origin.asked(&path) == before).then_some(())
    });
    let before = origin.asked(&path);
    assert!(ask("Cache-Control: no-cache\r\n").ends_with(&Origin::body(&path)), "{name}");
    assert_eq!(origin.asked(&path), before + 1, "{name}: a reload reaches the server");

    let used = running.resources().expect("it is watched");
    assert!(
        used.processes >= 1 && used.resident_bytes > 1 << 20 && used.descriptors > 3,
        "{name}: {used:?}"
    );
    running.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    let written = manifest("0", &Host::current(), Some(&environment), &running);
    let version = written.facts.iter().find(|(fact, _)| fact == "Version").expect("a version");
    assert!(version.1.contains(|c: char| c.is_ascii_digit()), "{name}: {version:?}");
    assert!(!written.files.is_empty(), "{name}");
    let folder = environment.folder().to_path_buf();
    let stopped = running.stop().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!stopped.was_killed, "{name}: {stopped:?}");
    environment.remove().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(traces_of(&folder), [] as [String; 0], "{name}");
}

#[test]
fn every_built_in_subject_serves_from_its_store_and_leaves_nothing() {
    std::thread::scope(|scope| {
        for (name, _) in SubjectFile::builtin_names() {
            scope.spawn(move || {
                let file = SubjectFile::builtin(&name).expect("a family").expect("a right file");
                serves_from_its_store(&name, file.mode());
            });
        }
        for name in ["squid:null", "humboldt:null", "trafficserver"] {
            scope.spawn(|| serves_from_its_store(name, Mode::Accelerator));
        }
    });
}

#[test]
fn a_scheme_that_is_missing_is_not_measured_under_its_name() {
    // A stand-in for a humboldt that takes what it knows instead.
    let text = SubjectFile::builtin_text("humboldt").expect("a file");
    let text = text
        .replace("\"$HUMBOLDT_BIN\", \"humboldt\"", "\"/bin/echo\"")
        .replacen("name = \"humboldt\"", "name = \"pretender\"", 1)
        .replace(
            "\"{program}\", \"-k\"",
            "\"{program}\", \"unknown storage scheme 'ring'\", \"-k\"",
        );
    let file = SubjectFile::parse(&text, "pretender.toml", Some("ring")).expect("a right file");
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let error =
        start(&file, &mut environment, &start_plan(&origin), &keeper).expect_err("it pretends");
    let message = error.to_string();
    assert!(message.starts_with("pretender:ring is not the expected program: "), "{message}");
    assert!(message.contains("unknown storage scheme 'ring'"), "{message}");
}

/// A subject file for a shell script.
fn script(text: &str) -> SubjectFile {
    let file = format!(
        "name = 'script'\ndescription = 'A script.'\nmode = 'forward'\npackage = 'dash'\nprograms = ['/bin/sh']\n\
         version = ['{{program}}', '-c', 'echo 1']\nready_after_s = 2\nstop_after_s = 1\n\
         start = ['{{program}}', '-c', '''{text}''']\n"
    );
    SubjectFile::parse(&file, "script.toml", None).expect("a right file")
}

#[test]
fn what_does_not_come_up_says_why() {
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let mut failure = |text: &str| {
        let result = start(&script(text), &mut environment, &start_plan(&origin), &keeper);
        result.expect_err("it does not come up").to_string()
    };
    let message = failure("echo no memory left >&2; exit 7");
    assert!(message.starts_with("script ended by itself (exit status: 7)"), "{message}");
    assert!(message.contains("output.log:\n    no memory left"), "{message}");
    let message = failure("echo waiting; sleep 60 & sleep 60");
    assert!(
        message.contains("does not accept connections") && message.contains("within 2 s"),
        "{message}"
    );
    let folder = environment.folder().to_path_buf();
    environment.remove().expect("removed");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
}

#[test]
fn what_dies_in_the_middle_is_noticed() {
    let Some(file) = installed("squid:null") else { return };
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let mut running =
        start(&file, &mut environment, &start_plan(&origin), &keeper).expect("it starts");
    let watched =
        attach(&running.address().to_string(), Mode::Forward, running.pid(), &Host::current());
    let mut watched = watched.expect("it can be attached to");
    running.check().expect("it runs");
    watched.check().expect("it runs");
    assert!(watched.resources().expect("it is watched").threads >= 2);
    let pid = running.pid().expect("it was started");
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill").success());
    let message = until("its death to be noticed", || running.check().err()).to_string();
    assert!(message.starts_with("squid:null ended by itself (signal: 9"), "{message}");
    assert!(message.contains("cache.log:\n"), "{message}");
    assert!(watched.check().expect_err("it has ended").to_string().contains("has ended"));
    // The helper whose parent was killed still lives, and is ended too.
    let folder = environment.folder().to_path_buf();
    assert!(running.stop().is_ok());
    environment.remove().expect("removed");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
}

#[test]
fn attaching_to_nothing_is_one_clear_line() {
    let host = Host::current();
    let gone = support::free_address().to_string();
    let message = attach(&format!("http://{gone}/"), Mode::Forward, None, &host)
        .expect_err("nobody")
        .to_string();
    assert!(
        message.contains("nobody accepts connections") && message.lines().count() == 1,
        "{message}"
    );
    let message =
        attach("http://no port", Mode::Forward, None, &host).expect_err("no address").to_string();
    assert!(message.contains("not an address such as"), "{message}");
    let origin = Origin::start();
    let address = origin.address().to_string();
    let message =
        attach(&address, Mode::Forward, Some(u32::MAX), &host).expect_err("no process").to_string();
    assert!(message.contains("there is no process"), "{message}");
    let running = attach(&address, Mode::Accelerator, None, &host).expect("somebody listens");
    assert_eq!((running.resources(), running.skipped().len()), (None, 1));
    assert!(
        running.stop().is_ok() && exchange_is_possible(&origin),
        "what was only watched goes on"
    );
}

fn exchange_is_possible(origin: &Origin) -> bool {
    exchange(origin.address(), Mode::Accelerator, origin.address(), "/x", "")
        .starts_with("HTTP/1.1 200")
}

#[test]
fn every_file_system_is_made_and_removed() {
    if !is_root("file systems") {
        return;
    }
    std::thread::scope(|scope| {
        for name in ["ext2", "ext3", "ext4", "xfs", "btrfs"] {
            scope.spawn(move || on_a_device(name));
        }
    });
}

fn on_a_device(file_system: &str) {
    let kind = StoreKind::Device {
        file_system: file_system.to_owned(),
        size_bytes: None,
        mount_options: vec!["noatime".to_owned()],
        disk: None,
    };
    let keeper = keeper();
    let two = EnvironmentPlan { stores: if file_system == "ext4" { 2 } else { 1 }, ..plan(kind) };
    let mut environment = match Environment::prepare(&two, &keeper) {
        Err(error @ SubjectError::ProgramMissing { .. }) => {
            eprintln!("skipped {file_system}: {error}");
            return;
        }
        result => result.unwrap_or_else(|error| panic!("{file_system}: {error}")),
    };
    let stores = environment.stores();
    let facts = environment.facts();
    assert!(facts[1].1.contains(&format!("{file_system} on /dev/loop")), "{facts:?}");
    assert!(facts[1].1.contains("noatime"), "{facts:?}");
    for store in &stores {
        fs::write(store.join("object"), "x".repeat(100_000)).expect("room for an object");
    }
    environment.drop_page_caches();
    assert_eq!(environment.skipped(), [], "{file_system}");
    let folder = environment.folder().to_path_buf();
    environment.remove().unwrap_or_else(|error| panic!("{file_system}: {error}"));
    assert_eq!(traces_of(&folder), [] as [String; 0], "{file_system}");
}

fn has_fuse() -> bool {
    let is_there = Path::new("/dev/fuse").exists();
    if !is_there {
        eprintln!("skipped: a kernel without FUSE has no simulated disk");
    }
    is_there
}

/// The claim of a disk with an arm: many requests at once are served faster than one after the
/// other, and none faster than the arm can.
#[test]
fn a_simulated_disk_takes_its_time_and_keeps_every_byte() {
    /// The command, the arm over a part of the disk, and half a turn, in seconds, at least.
    const READ_LEAST_S: f64 = 0.0054;
    const BLOCKS: u64 = 64;
    const THREADS: u64 = 16;
    if !is_root("a simulated disk") || !has_fuse() {
        return;
    }
    let kind = StoreKind::Device {
        file_system: "ext2".to_owned(),
        size_bytes: None,
        mount_options: vec!["noatime".to_owned()],
        disk: DiskSpeed::times(1.0),
    };
    let keeper = keeper();
    let environment = Environment::prepare(&plan(kind), &keeper).expect("an environment");
    let facts = environment.facts();
    assert!(facts[1].1.contains("simulated disk of 1999 × 1"), "{facts:?}");
    let path = environment.stores()[0].join("object");
    // Far from one another in a file of 32 MB, and not in the order of their places.
    let place = |number: u64| (number * 37 % BLOCKS) * (32 << 20) / BLOCKS;
    let contents = |number: u64| format!("{number:08} ").repeat(500).into_bytes();
    let file = File::create(&path).expect("a file");
    for number in 0..BLOCKS {
        file.write_all_at(&contents(number), place(number)).expect("room");
    }
    file.sync_all().expect("on the disk");
    drop(file);
    let read = &|number: u64| {
        let file = File::open(&path).expect("the file");
        let mut block = vec![0; contents(number).len()];
        file.read_exact_at(&mut block, place(number)).expect("a block");
        assert_eq!(block, contents(number));
    };
    let forget = || fs::write("/proc/sys/vm/drop_caches", "3").expect("forgotten");
    forget();
    let begun = Instant::now();
    (0..BLOCKS).for_each(read);
    let one_by_one_s = begun.elapsed().as_secs_f64();
    assert!(one_by_one_s >= BLOCKS as f64 * READ_LEAST_S, "{BLOCKS} blocks in {one_by_one_s} s");
    forget();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (thread..BLOCKS).step_by(THREADS as usize).for_each(read));
        }
    });
    let at_once_s = begun.elapsed().as_secs_f64();
    assert!(at_once_s < one_by_one_s, "{at_once_s} s beside {one_by_one_s} s");
    assert_eq!(environment.skipped(), []);
    let folder = environment.folder().to_path_buf();
    environment.remove().expect("removed");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
}

#[test]
fn more_disks_than_memory_has_room_for_are_refused() {
    if !is_root("a simulated disk") {
        return;
    }
    let kind = StoreKind::Device {
        file_system: "ext2".to_owned(),
        size_bytes: Some(1 << 44),
        mount_options: Vec::new(),
        disk: DiskSpeed::times(1.0),
    };
    let error = Environment::prepare(&plan(kind), &keeper()).expect_err("16 TB in memory");
    assert!(error.to_string().contains("half of the machine's"), "{error}");
}

#[test]
fn a_throttled_device_is_slow_and_later_fast_again() {
    if !is_root("throttled devices") {
        return;
    }
    const WRITTEN_BYTES: usize = 4 << 20;
    let kind = StoreKind::Device {
        file_system: "ext4".to_owned(),
        size_bytes: None,
        mount_options: Vec::new(),
        disk: None,
    };
    let throttle = Throttle { write_bytes_per_s: 4 << 20, read_iops: 5000, ..Throttle::default() };
    let keeper = keeper();
    let environment =
        Environment::prepare(&EnvironmentPlan { throttle: Some(throttle), ..plan(kind) }, &keeper)
            .expect("an environment");
    if let Some(skipped) = environment.skipped().first() {
        eprintln!("skipped throttled devices: {skipped}");
        return;
    }
    let write_s = |environment: &Environment| {
        let started = Instant::now();
        let mut file = File::create(environment.stores()[0].join("object")).expect("a file");
        file.write_all(&vec![b'x'; WRITTEN_BYTES]).expect("room");
        // Pages that the kernel writes later are throttled too.
        file.sync_all().expect("on disk");
        started.elapsed().as_secs_f64()
    };
    let slow_s = write_s(&environment);
    assert!(slow_s > 0.8, "4 MiB at 4 MiB/s took {slow_s} s");
    let facts = environment.facts();
    assert!(
        facts.iter().any(|(name, _)| name.starts_with("Each store's device limited")),
        "{facts:?}"
    );
    let folder = environment.folder().to_path_buf();
    environment.remove().expect("removed");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
    for name in ["write_bps", "read_iops"] {
        let file = format!("/sys/fs/cgroup/blkio/blkio.throttle.{name}_device");
        let limits = fs::read_to_string(file).unwrap_or_default();
        assert!(!limits.contains(" 4194304") && !limits.contains(" 5000"), "{limits}");
    }
}

#[test]
fn who_is_not_root_gets_reasons_and_errors_in_time() {
    let host = Host { is_root: false, ..Host::current() };
    let keeper = keeper();
    let kind = StoreKind::Device {
        file_system: "xfs".to_owned(),
        size_bytes: None,
        mount_options: Vec::new(),
        disk: None,
    };
    let device = EnvironmentPlan { host: host.clone(), ..plan(kind) };
    let message = Environment::prepare(&device, &keeper).expect_err("needs root").to_string();
    assert!(
        message.contains("stores on xfs need root") && message.lines().count() == 1,
        "{message}"
    );

    let throttle = Some(Throttle { read_iops: 100, ..Throttle::default() });
    let folder = EnvironmentPlan { host, throttle, ..plan(StoreKind::Folder(None)) };
    let mut environment = Environment::prepare(&folder, &keeper).expect("folders need no rights");
    environment.drop_page_caches();
    environment.drop_page_caches();
    let skipped: Vec<String> = environment.skipped().iter().map(ToString::to_string).collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert!(
        skipped[0].starts_with("throttled devices (read operations 100/s): the stores are folders")
    );
    assert_eq!(skipped[1], "dropping of page caches: needs root");
    let folder = environment.folder().to_path_buf();
    drop(environment);
    assert_eq!(traces_of(&folder), [] as [String; 0], "dropping it is enough");
}

#[test]
fn a_folder_that_the_subject_cannot_enter_is_refused() {
    let Some(file) =
        installed("squid:null").filter(|_| is_root("a subject that becomes another user"))
    else {
        return;
    };
    let closed = tempfile::tempdir().expect("a folder");
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).expect("closed");
    let (origin, keeper) = (Origin::start(), keeper());
    let plan = EnvironmentPlan {
        parent: Some(closed.path().to_path_buf()),
        ..plan(StoreKind::Folder(None))
    };
    let mut environment = Environment::prepare(&plan, &keeper).expect("root may do anything");
    let error = start(&file, &mut environment, &start_plan(&origin), &keeper)
        .expect_err("it cannot get there");
    let message = error.to_string();
    assert!(
        message.contains("user `proxy`") && message.contains("choose another folder"),
        "{message}"
    );
}

/// The whole reason for the keeper: processes, mounts, loop devices, queues, shared memory,
/// folders.
#[test]
fn nothing_is_left_when_the_laboratory_is_killed() {
    let Some(_) = installed("squid:diskd") else { return };
    let origin = Origin::start();
    let mut command = Command::new(hold_program());
    command.args(["squid:diskd", &origin.address().to_string()]);
    if is_root("a device under a killed laboratory") {
        command.arg("ext4");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut laboratory = command.spawn().expect("it starts");
    let output = BufReader::new(laboratory.stdout.take().expect("a pipe"));
    let (mut folder, mut pid) = (String::new(), String::new());
    for line in output.lines() {
        let line = line.expect("text");
        match line.split_once(' ') {
            Some(("folder", value)) => value.clone_into(&mut folder),
            Some(("pid", value)) => value.clone_into(&mut pid),
            Some(("listens", _)) => break,
            _ => {}
        }
    }
    let folder = Path::new(&folder);
    let pids = processes_of(&folder.display().to_string());
    let command =
        fs::read_to_string(Path::new("/proc").join(&pid).join("cmdline")).expect("it runs");
    let instance =
        command.split('\0').find(|word| word.starts_with("lab")).expect("-n INSTANCE").to_owned();
    assert!(traces_of(folder).len() >= 3, "it is there: {:?}", traces_of(folder));
    assert!(
        left_in_the_kernel(&pids, &instance).len() >= 3,
        "{:?}",
        left_in_the_kernel(&pids, &instance)
    );
    laboratory.kill().expect("killed as by kill -9");
    // Nor does Squid get a chance to clean up after itself.
    Command::new("kill").arg("-9").args(&pids).status().expect("kill");
    laboratory.wait().expect("gone");
    let said = wait_for_keeper(&mut laboratory);
    let traces = [traces_of(folder), left_in_the_kernel(&pids, &instance)].concat();
    assert_eq!(traces, [] as [String; 0], "{said}");
}

/// The keeper has the laboratory's standard error: when all that have it are gone, so is the
/// keeper.
fn wait_for_keeper(laboratory: &mut Child) -> String {
    let mut said = String::new();
    laboratory.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    said
}

/// While it makes folders, devices and file systems, prepares, starts; in the middle of a mount,
/// too.
#[test]
fn nothing_is_left_whenever_the_laboratory_is_killed() {
    let Some(_) = installed("squid:diskd") else { return };
    let is_root = is_root("devices under killed laboratories");
    std::thread::scope(|scope| {
        for delay_ms in [10, 30, 50, 70, 90, 120, 150, 200, 300, 500] {
            scope.spawn(move || {
                let mut command = Command::new(hold_program());
                command.args(["squid:diskd", "127.0.0.1:9"]).args(is_root.then_some("ext4"));
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
                let mut laboratory = command.spawn().expect("it starts");
                std::thread::sleep(Duration::from_millis(delay_ms));
                laboratory.kill().expect("killed as by kill -9");
                laboratory.wait().expect("gone");
                let said = wait_for_keeper(&mut laboratory);
                let traces = traces_with(&format!("-{}-0", laboratory.id()));
                assert_eq!(traces, [] as [String; 0], "killed after {delay_ms} ms: {said}");
            });
        }
    });
}

#[test]
fn a_kept_folder_has_the_logs_and_no_stores() {
    let Some(file) = installed("squid:ufs") else { return };
    let (origin, keeper) = (Origin::start(), keeper());
    let parent = tempfile::tempdir().expect("a folder");
    let given = tempfile::tempdir().expect("a folder");
    for folder in [&parent, &given] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open");
    }
    let plan = EnvironmentPlan {
        parent: Some(parent.path().to_path_buf()),
        keep_folder: true,
        stores: 2,
        ..plan(StoreKind::Folder(Some(given.path().to_path_buf())))
    };
    let mut environment = Environment::prepare(&plan, &keeper).expect("an environment");
    let start_plan = StartPlan { words: few_folders("squid"), ..start_plan(&origin) };
    let running = start(&file, &mut environment, &start_plan, &keeper).expect("it starts");
    let folder = environment.folder().to_path_buf();
    let stores = environment.stores();
    assert!(
        stores.iter().all(|store| store.starts_with(given.path()) && store.join("00").exists()),
        "{stores:?}"
    );
    running.stop().expect("it stops");
    environment.remove().expect("removed");
    assert!(folder.join("squid.conf").exists() && folder.join("cache.log").exists());
    assert_eq!(fs::read_dir(given.path()).expect("the folder").count(), 0);
}
