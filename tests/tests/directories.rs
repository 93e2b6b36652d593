//! Several cache directories: the choice among them, and the effect of changes, full disks,
//! failures, and returns.

#[path = "directories/changes.rs"]
mod changes;

use humboldt_tests::wait::{start, until};
use humboldt_tests::{Client, Reply, World, servers};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The schemes that all of this holds for.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// Lines without which objects would be answered from memory.
const NO_MEMORY: &str = "cache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";

fn body(index: usize, bytes: usize) -> String {
    format!("object {index} of {bytes} ").repeat(bytes / 16 + 1)[..bytes].to_owned()
}

/// Requests an object of `bytes` that the origin has from now on; returns whether it was a hit.
fn fetch(world: &World, index: usize, bytes: usize) -> bool {
    let path = format!("/{bytes}/{index}");
    world.origin.on(&path, Reply::ok(body(index, bytes)).cachable(3_600));
    is_hit(world, index, bytes)
}

/// The same for an object that the origin has already.
fn is_hit(world: &World, index: usize, bytes: usize) -> bool {
    let answer = world.get(&format!("/{bytes}/{index}")).expect(200);
    assert!(answer.text() == body(index, bytes), "object {index}: not the origin's bytes");
    answer.cache() == "HIT"
}

/// A figure of the directory at `dir/name`; `None` when it is not in service.
fn figure(world: &World, metric: &str, name: &str) -> Option<f64> {
    let target = world.proxy.page("metrics");
    let page = world.client().request("GET", &target, &[], b"").response().expect(200).text();
    let path = format!("path=\"{}\"", world.proxy.path(name).display());
    let line = page.lines().find(|line| line.starts_with(metric) && line.contains(&path))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn objects(world: &World, name: &str) -> usize {
    figure(world, "humboldt_store_objects", name).unwrap_or(0.0) as usize
}

/// Number of objects ever written to a directory.
fn written(world: &World, name: &str) -> usize {
    figure(world, "humboldt_store_writes_total", name).unwrap_or(0.0) as usize
}

/// Waits until directories have `count` objects in all.
fn wait_for_objects(world: &World, names: &[&str], count: usize) {
    until(&format!("{count} objects"), || {
        (names.iter().map(|name| objects(world, name)).sum::<usize>() >= count).then_some(())
    });
}

/// Waits until directories are open and know their objects.
fn wait_until_ready(world: &World, names: &[&str]) {
    for name in names {
        until(&format!("{name} in service"), || {
            let is_up = figure(world, "humboldt_store_down", name)? == 0.0;
            (is_up && figure(world, "humboldt_store_rebuild_ratio", name)? == 1.0).then_some(())
        });
    }
}

fn count(world: &World, part: &str) -> usize {
    world.proxy.text("cache.log").matches(part).count()
}

/// Waits for a line in cache.log, of which there must be one.
fn says_once(world: &World, part: &str) {
    until(part, || (count(world, part) > 0).then_some(()));
    assert_eq!(count(world, part), 1, "{part}");
}

/// Clients that ask for objects in turn until they are told to stop. Every answer must be right.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(world: &World, objects: usize, bytes: usize) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..3).map(|thread| {
            let urls: Vec<_> =
                (0..objects).map(|i| (i, world.origin.url(&format!("/{bytes}/{i}")))).collect();
            let (address, stop, answers) = (world.proxy.address(), stop.clone(), answers.clone());
            std::thread::spawn(move || {
                let mut client = Client::to(address);
                for (index, url) in urls.iter().cycle().skip(thread * 7) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let answer = client.request("GET", url, &[], b"").response().expect(200);
                    assert!(
                        answer.is_complete && answer.text() == body(*index, bytes),
                        "object {index}"
                    );
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Self { threads: threads.collect(), stop, answers }
    }

    /// Waits for some more answers.
    fn go_on(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        until("more answers", || {
            let alive = self.threads.iter().all(|thread| !thread.is_finished());
            assert!(alive, "a client got a wrong answer");
            (self.answers.load(Ordering::Relaxed) > before + 50).then_some(())
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("only right answers"));
    }
}

#[test]
fn objects_go_where_their_size_belongs() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let world = World::forward(&format!(
            "cache_dir {scheme} {{dir}}/small 20 4 4 max-size=2000\ncache_dir {scheme} {{dir}}/large 20 4 4 min-size=2001\n\
             {NO_MEMORY}"
        ));
        wait_until_ready(&world, &["small", "large"]);
        (0..5).for_each(|index| assert!(!fetch(&world, index, 1_500)));
        (0..7).for_each(|index| assert!(!fetch(&world, index, 9_000)));
        wait_for_objects(&world, &["small", "large"], 12);
        assert_eq!((objects(&world, "small"), objects(&world, "large")), (5, 7), "{scheme}");
        assert!(
            (0..5).all(|index| is_hit(&world, index, 1_500))
                && (0..7).all(|index| is_hit(&world, index, 9_000))
        );
    }
}

#[test]
fn an_object_of_unknown_length_that_is_too_large_goes_to_the_next_directory() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let world = World::forward(&format!(
            "cache_dir {scheme} {{dir}}/small 20 4 4 max-size=50000\ncache_dir {scheme} {{dir}}/large 20 4 4 min-size=50001\n\
             {NO_MEMORY}"
        ));
        wait_until_ready(&world, &["small", "large"]);
        for (index, bytes) in [10_000, 300_000].into_iter().enumerate() {
            let text = body(index, bytes);
            let sent = text.clone();
            world.origin.handle(&format!("/{bytes}/{index}"), move |_, wire| {
                wire.send(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=3600\r\n\r\n",
                );
                for part in sent.as_bytes().chunks(20_000) {
                    wire.send(format!("{:x}\r\n", part.len()));
                    wire.send(part);
                    wire.send("\r\n");
                }
                wire.send("0\r\n\r\n");
            });
            assert!(!is_hit(&world, index, bytes));
            wait_for_objects(&world, &["small", "large"], index + 1);
            assert!(is_hit(&world, index, bytes), "{scheme}: {bytes} bytes");
        }
        assert_eq!((objects(&world, "small"), objects(&world, "large")), (1, 1), "{scheme}");
    }
}

#[test]
fn round_robin_takes_turns_and_least_load_looks_for_room() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        for (algorithm, expected) in [("round-robin", (10, 10)), ("least-load", (0, 20))] {
            let world = World::forward(&format!(
                "store_dir_select_algorithm {algorithm}\ncache_dir {scheme} {{dir}}/a 10 4 4\n\
                 cache_dir {scheme} {{dir}}/b 100 4 4\n{NO_MEMORY}"
            ));
            wait_until_ready(&world, &["a", "b"]);
            for index in 0..20 {
                assert!(!fetch(&world, index, 5_000));
                // One after the other: with writes under way the larger one may be the busier one.
                wait_for_objects(&world, &["a", "b"], index + 1);
            }
            let stored = (objects(&world, "a"), objects(&world, "b"));
            assert_eq!(stored, expected, "{scheme} {algorithm}");
        }
    }
}

#[test]
fn a_directory_leaves_and_comes_back_with_its_content_while_requests_go_on() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let both = format!(
            "store_dir_select_algorithm round-robin\ncache_dir {scheme} {{dir}}/a 20 4 4\ncache_dir {scheme} {{dir}}/b 20 4 4\n\
             {NO_MEMORY}acl purge method PURGE\nhttp_access allow purge\n"
        );
        let only_a = both.replace(&format!("cache_dir {scheme} {{dir}}/b 20 4 4\n"), "");
        let world = World::forward(&both);
        wait_until_ready(&world, &["a", "b"]);
        (0..40).for_each(|index| assert!(!fetch(&world, index, 5_000)));
        wait_for_objects(&world, &["a", "b"], 40);
        // Other objects than those that are to come back: a new answer would replace the old one.
        (0..30).for_each(|index| assert!(!fetch(&world, index, 3_000)));
        let load = Load::start(&world, 30, 3_000);
        load.go_on();
        world.proxy.reconfigure(&only_a);
        load.go_on();
        assert_eq!(figure(&world, "humboldt_store_down", "b"), None, "out of the configuration");
        for index in 0..4 {
            _ = world.ask("PURGE", &format!("/5000/{index}"), &[]);
        }
        world.proxy.reconfigure(&both);
        load.go_on();
        wait_until_ready(&world, &["a", "b"]);
        until("its content", || {
            let target = world.target("/5000/39");
            let other = world.target("/5000/38");
            let mut client = world.client();
            let mut hit = |target: &str| {
                let only = [("Cache-Control", "only-if-cached")];
                client.request("GET", target, &only, b"").response().status() == 200
            };
            (hit(&target) && hit(&other)).then_some(())
        });
        assert!((4..40).all(|index| is_hit(&world, index, 5_000)), "{scheme}");
        assert!(
            (0..4).all(|index| !is_hit(&world, index, 5_000)),
            "{scheme}: purged while it was away"
        );
        load.end();
    }
}

#[test]
fn a_directory_is_resized_under_load_and_the_other_is_not_touched() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let lines = |mbytes: u32| {
            format!(
                "cache_dir {scheme} {{dir}}/a {mbytes} 4 4\ncache_dir {scheme} {{dir}}/b 20 4 4\n{NO_MEMORY}"
            )
        };
        let world = World::forward(&lines(20));
        wait_until_ready(&world, &["a", "b"]);
        (0..60).for_each(|index| assert!(!fetch(&world, index, 20_000)));
        wait_for_objects(&world, &["a", "b"], 60);
        let reads = || figure(&world, "humboldt_store_writes_total", "b").expect("in service");
        let load = Load::start(&world, 60, 20_000);
        for mbytes in [40, 10, 20] {
            let written = reads();
            world.proxy.reconfigure(&lines(mbytes));
            assert!(reads() >= written, "{scheme}: b was opened anew");
            // Those who are still at the old one hold it up.
            until("its new size", || {
                let bytes = figure(&world, "humboldt_store_capacity_bytes", "a")?;
                (bytes as u32 >> 20 == mbytes).then_some(())
            });
            load.go_on();
        }
        load.end();
        wait_until_ready(&world, &["a", "b"]);
        let hits = (0..60).filter(|index| is_hit(&world, *index, 20_000)).count();
        assert!(hits > 50, "{scheme}: {hits} of 60 are still there");
        assert_eq!(count(&world, "going on without it"), 0);
    }
}

/// Makes every directory below `root` (un)writable.
fn set_mode(root: &Path, mode: u32) {
    for entry in fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() {
            set_mode(&entry.path(), mode);
        }
    }
    fs::set_permissions(root, Permissions::from_mode(mode)).expect("own directories");
}

#[test]
fn a_directory_that_becomes_unwritable_goes_out_of_service_once_and_is_tried_again() {
    // As the one file is open already, only schemes with a file per object notice.
    let lines = format!(
        "store_dir_select_algorithm round-robin\ncache_dir ufs {{dir}}/a 20 2 2\ncache_dir ufs {{dir}}/b 20 2 2\n{NO_MEMORY}\
         acl purge method PURGE\nhttp_access allow purge\n"
    );
    let world = World::forward(&lines);
    wait_until_ready(&world, &["a", "b"]);
    (0..10).for_each(|index| assert!(!fetch(&world, index, 5_000)));
    wait_for_objects(&world, &["a", "b"], 10);
    let _ = world.ask("PURGE", "/5000/9", &[]).expect(200);
    let _ = world.ask("PURGE", "/5000/9", &[]).expect(404);
    set_mode(&world.proxy.path("a"), 0o555);
    let mut index = 10;
    until("a out of service", || {
        fetch(&world, index, 5_000);
        index += 1;
        (figure(&world, "humboldt_store_down", "a") == Some(1.0)).then_some(())
    });
    (0..50).for_each(|more| assert!(!fetch(&world, index + more, 5_000)));
    let stored = objects(&world, "b");
    // Five of the first ten are in a, and one of them has been purged.
    until("the rest in b", || (objects(&world, "b") >= index + 50 - 6).then_some(()));
    assert!(stored > 0);
    says_once(&world, "out of service");
    // No request gets a purged object now, but a crash could bring it back.
    let _ = world.ask("PURGE", "/5000/8", &[]).expect(500);
    assert!(!is_hit(&world, 8, 5_000));
    let _ = world.ask("PURGE", "/5000/8", &[]).expect(500);
    set_mode(&world.proxy.path("a"), 0o755);
    world.proxy.reconfigure(&lines);
    wait_until_ready(&world, &["a", "b"]);
    let _ = world.ask("PURGE", "/5000/8", &[]).expect(404);
    let before = objects(&world, "a");
    (1_000..1_010).for_each(|index| assert!(!fetch(&world, index, 5_000)));
    until("new objects in a", || (objects(&world, "a") > before).then_some(()));
}

#[test]
fn a_directory_in_use_by_another_process_is_left_out_until_it_is_free() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let mut holder =
            World::forward(&format!("cache_dir {scheme} {{dir}}/cache 20 4 4\n{NO_MEMORY}"));
        let shared = holder.proxy.path("cache");
        let lines = format!(
            "cache_dir {scheme} {} 20 4 4\ncache_dir {scheme} {{dir}}/own 20 4 4\n{NO_MEMORY}",
            shared.display()
        );
        let world = World::forward("");
        world.proxy.reconfigure(&lines);
        says_once(&world, "in use by another process");
        wait_until_ready(&world, &["own"]);
        assert!(!fetch(&world, 1, 5_000));
        wait_for_objects(&world, &["own"], 1);
        holder.proxy.stop();
        world.proxy.reconfigure(&lines);
        says_once(&world, "in use by another process");
        says_once(&world, "going on without it");
    }
}

/// A file system in memory at a path, while it exists.
struct Mount(PathBuf);

impl Mount {
    /// `None` where this machine does not allow it.
    fn tmpfs(path: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        let options = format!("mode=777,{options}");
        let path_text = path.to_str()?;
        run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", path_text])
            .then(|| Self(path.to_owned()))
    }

    /// A file system on a file of `bytes`.
    fn image(path: &Path, image: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        fs::File::create(image).and_then(|file| file.set_len(bytes)).ok()?;
        let (path_text, image) = (path.to_str()?, image.to_str()?);
        let made = run("mkfs.ext4", &["-q", "-F", "-m", "0", "-O", "^has_journal", image]);
        let mount = (made && run("mount", &["-o", "loop", image, path_text]))
            .then(|| Self(path.to_owned()))?;
        fs::set_permissions(path, Permissions::from_mode(0o777)).ok()?;
        Some(mount)
    }

    /// Takes away the part beyond `bytes` of the device that `image` is: a write there gets an
    /// error.
    fn cut_off(image: &Path, bytes: u64) {
        let file = fs::OpenOptions::new().write(true).open(image);
        file.and_then(|file| file.set_len(bytes)).expect("the image");
        let found = servers::run(Command::new("losetup").arg("-j").arg(image));
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let device = found.split(':').next().expect("a line");
        assert!(run("losetup", &["-c", device]), "{device} has another size");
    }

    fn remount(&self, options: &str) {
        let path = self.0.to_str().expect("a path in Unicode");
        assert!(run("mount", &["-o", &format!("remount,{options}"), path]), "remount {options}");
    }
}

/// Unmounts at once; present users keep it.
impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap_or_default()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    start(&mut command).and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
}

#[test]
fn a_full_file_system_concerns_one_directory_until_it_has_room_again() {
    let mut world = World::forward("");
    let Some(mount) = Mount::tmpfs(&world.proxy.path("full"), "size=512k") else {
        return humboldt_tests::skip("no right to mount a tmpfs");
    };
    let lines = format!(
        "store_dir_select_algorithm round-robin\ncache_dir ufs {{dir}}/full/a 20 2 2\n\
         cache_dir ufs {{dir}}/b 20 2 2\n{NO_MEMORY}"
    );
    world.proxy.reconfigure(&lines);
    wait_until_ready(&world, &["full/a", "b"]);
    (0..40).for_each(|index| assert!(!fetch(&world, index, 50_000)));
    says_once(&world, "storing less than configured");
    // Old ones make way for new ones there, and the other is not affected: it got its share, and
    // the objects that found no room.
    until("39 objects written", || {
        (written(&world, "full/a") + written(&world, "b") >= 39).then_some(())
    });
    let (in_full, in_other) = (objects(&world, "full/a"), objects(&world, "b"));
    assert!((5..=10).contains(&in_full) && written(&world, "full/a") > in_full, "{in_full}");
    assert!((20..25).contains(&in_other), "{in_other}");
    mount.remount("size=20m");
    world.proxy.reconfigure(&lines);
    wait_until_ready(&world, &["full/a"]);
    let before = objects(&world, "full/a");
    (1_000..1_010).for_each(|index| assert!(!fetch(&world, index, 5_000)));
    until("new objects in a", || (objects(&world, "full/a") > before).then_some(()));
    assert!(world.proxy.stop().success()); // before its file system goes
}

#[test]
fn a_directory_on_a_read_only_file_system_is_left_out_until_it_is_writable() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let mut world = World::forward("");
        let Some(mount) = Mount::tmpfs(&world.proxy.path("mount"), "size=50m") else {
            return humboldt_tests::skip("no right to mount a tmpfs");
        };
        mount.remount("ro");
        let lines = format!(
            "cache_dir {scheme} {{dir}}/mount/a 20 4 4\ncache_dir {scheme} {{dir}}/b 20 4 4\n{NO_MEMORY}"
        );
        world.proxy.reconfigure(&lines);
        says_once(&world, "going on without it");
        wait_until_ready(&world, &["b"]);
        assert!(!fetch(&world, 1, 5_000));
        mount.remount("rw");
        world.proxy.reconfigure(&lines);
        wait_until_ready(&world, &["mount/a", "b"]);
        says_once(&world, "going on without it");
        assert!(world.proxy.stop().success()); // before its file system goes
    }
}

/// Most of the device goes away: it answers writes with errors. Past the page cache, so that it is
/// the device that answers.
#[test]
fn a_device_that_fails_costs_its_directory_and_nothing_else() {
    let mut world = World::forward("");
    let (image, path) = (world.proxy.path("image"), world.proxy.path("mount"));
    let Some(_mount) = Mount::image(&path, &image, 200 << 20) else {
        return humboldt_tests::skip("no right to mount a file");
    };
    let lines = format!(
        "store_dir_select_algorithm round-robin\ncache_dir ring {{dir}}/mount/a 100 page-cache=off\n\
         cache_dir ring {{dir}}/b 100\n{NO_MEMORY}"
    );
    world.proxy.reconfigure(&lines);
    wait_until_ready(&world, &["mount/a", "b"]);
    Mount::cut_off(&image, 1 << 20);
    let mut index = 0;
    until("out of service", || {
        assert!(!fetch(&world, index, 500_000));
        index += 1;
        (figure(&world, "humboldt_store_down", "mount/a") == Some(1.0)).then_some(())
    });
    says_once(&world, "errors in a row, this cache_dir is out of service");
    (1_000..1_010).for_each(|index| assert!(!fetch(&world, index, 50_000)));
    until("hits from b", || {
        (1_000..1_010).all(|index| is_hit(&world, index, 50_000)).then_some(())
    });
    assert!(world.proxy.stop().success()); // before its file systems go
}

#[test]
fn a_miss_that_the_disk_is_to_blame_for_is_logged_as_such() {
    let world = World::forward(&format!("cache_dir ufs {{dir}}/a 20 4 4\n{NO_MEMORY}"));
    wait_until_ready(&world, &["a"]);
    assert!(!fetch(&world, 1, 5_000));
    wait_for_objects(&world, &["a"], 1);
    let file = fs::OpenOptions::new().write(true).open(world.proxy.path("a/00/00/00000000"));
    file.and_then(|file| file.set_len(3_000)).expect("the object's file");
    assert!(!is_hit(&world, 1, 5_000));
    let line = world.proxy.logged("TCP_SWAPFAIL_MISS/200");
    assert!(line.contains("/5000/1"), "{line}");
    until("it is stored again", || is_hit(&world, 1, 5_000).then_some(()));
}
