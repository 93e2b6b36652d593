//! The control thread waits for no disk, pipe or store: signals are obeyed whatever hangs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use humboldt_tests::servers::succeed;
use humboldt_tests::{Proxy, Reply, World, proxy, wait};
use rustix::fs::OFlags;
use rustix::process::Signal;

fn make_pipe(proxy: &Proxy, name: &str) {
    make_pipe_at(&proxy.path(name));
}

fn make_pipe_at(path: &std::path::Path) {
    succeed(std::process::Command::new("mkfifo").args(["-m", "666"]).arg(path));
}

#[test]
fn a_log_on_a_pipe_that_nobody_reads_hinders_neither_start_nor_reload_nor_rotation_nor_end() {
    let folder = proxy::open_folder();
    let pipe = folder.path().join("pipe");
    make_pipe_at(&pipe);
    let lines = format!("access_log stdio:{} squid\n", pipe.display());
    let mut world = World::forward(&lines);
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    let _ = world.get("/a").expect(200);
    world.proxy.signal(Signal::USR1);
    wait::until("a rotation", || world.proxy.output().contains("Logs rotated").then_some(()));
    world.proxy.signal(Signal::HUP);
    world.proxy.wait_for_reconfigurations(1);
    let _ = world.get("/a").expect(200);
    // A reader that comes now gets the lines from now on.
    let reader = File::options().read(true).write(true).open(&pipe).expect("a reader");
    let lines = wait::until("a line", || {
        let _ = world.get("/a").expect(200);
        let ready = rustix::io::ioctl_fionread(&reader).expect("a pipe");
        (ready > 0).then_some(ready)
    });
    assert!(lines > 0);
    assert!(world.proxy.stop().success());
}

#[test]
fn a_reload_that_hangs_in_a_store_does_not_keep_the_end() {
    let mut world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    make_pipe(&world.proxy, "purges");
    // To open it hangs, as a disk may.
    world.proxy.write_configuration("", "cache_dir ring {dir}/ring 64\npurge_log {dir}/purges\n");
    world.proxy.signal(Signal::HUP);
    wait::until("a store that is opened", || world.proxy.path("ring").exists().then_some(()));
    let _ = world.get("/a").expect(200);
    world.proxy.signal(Signal::TERM);
    wait::until("an order that is heard", || {
        world.proxy.output().contains("Shutting down").then_some(())
    });
    assert!(world.proxy.wait_end().success());
}

/// The writing end of a list on a pipe that the proxy has begun to read.
fn list_being_read(proxy: &Proxy, name: &str) -> File {
    // Without a reader it does not open, and so says that there is one.
    let open = || {
        let mut options = File::options();
        let flags = OFlags::NONBLOCK.bits() as i32;
        options.write(true).custom_flags(flags).open(proxy.path(name)).ok()
    };
    let list = wait::until("a reload that reads the list", open);
    rustix::fs::fcntl_setfl(&list, OFlags::empty()).expect("writes that wait");
    list
}

const LIST: &str = "acl listed url_regex \"{dir}/list\"\nhttp_access deny listed\n";

#[test]
fn requests_are_answered_and_signals_obeyed_while_a_long_list_is_read() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    world.origin.on("/listed", Reply::ok("hello").cachable(60));
    make_pipe(&world.proxy, "list");
    world.proxy.write_configuration("", LIST);
    world.proxy.signal(Signal::HUP);
    let mut list = list_being_read(&world.proxy, "list");
    let entries: Vec<String> = (0..200_000).map(|n| format!("never{n}\\.example/x\n")).collect();
    let mut client = world.client();
    for some in entries.chunks(10_000) {
        list.write_all(some.concat().as_bytes()).expect("a reader");
        for path in ["/a", "/listed"] {
            let _ = client.request("GET", &world.target(path), &[], b"").response().expect(200);
        }
    }
    world.proxy.signal(Signal::USR1);
    wait::until("a rotation", || world.proxy.output().contains("Logs rotated").then_some(()));
    assert!(!world.proxy.output().contains("Reconfigured"));
    list.write_all(b"/listed\n").expect("a reader");
    drop(list);
    // Compiling takes a while, in which the old rules hold for every request.
    wait::until("the list", || match world.get("/listed").status() {
        403 => Some(()),
        status => {
            assert_eq!(status, 200);
            None
        }
    });
    world.proxy.wait_for_reconfigurations(1);
    assert_eq!(client.request("GET", &world.target("/listed"), &[], b"").response().status(), 403);
    let _ = world.get("/a").expect(200);
}

#[test]
fn a_reload_that_is_asked_for_while_another_reads_follows_it() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    make_pipe(&world.proxy, "list");
    world.proxy.write_configuration("", LIST);
    world.proxy.signal(Signal::HUP);
    let list = list_being_read(&world.proxy, "list");
    world.proxy.write_configuration("", "acl a urlpath_regex ^/a\nhttp_access deny a\n");
    world.proxy.signal(Signal::HUP);
    // The order has been heard when one behind it has been obeyed.
    world.proxy.signal(Signal::USR1);
    wait::until("a rotation", || world.proxy.output().contains("Logs rotated").then_some(()));
    let _ = world.get("/a").expect(200);
    drop(list);
    wait::until("the newest rule", || (world.get("/a").status() == 403).then_some(()));
}

#[test]
fn what_was_read_before_another_reload_was_asked_for_is_not_applied() {
    let world = World::forward("");
    for path in ["/one", "/two"] {
        world.origin.on(path, Reply::ok("hello").cachable(60));
    }
    make_pipe(&world.proxy, "list");
    make_pipe(&world.proxy, "second");
    world.proxy.write_configuration("", LIST);
    world.proxy.signal(Signal::HUP);
    let mut list = list_being_read(&world.proxy, "list");
    world.proxy.write_configuration("", &LIST.replace("/list", "/second"));
    world.proxy.signal(Signal::HUP);
    world.proxy.signal(Signal::USR1);
    wait::until("a rotation", || world.proxy.output().contains("Logs rotated").then_some(()));
    list.write_all(b"/one\n").expect("a reader");
    drop(list);
    // The second reading begins when the first has ended.
    let mut second = list_being_read(&world.proxy, "second");
    let _ = world.get("/one").expect(200);
    second.write_all(b"/two\n").expect("a reader");
    drop(second);
    wait::until("the second list", || (world.get("/two").status() == 403).then_some(()));
    let _ = world.get("/one").expect(200);
}

#[test]
fn a_list_that_hangs_does_not_keep_the_end() {
    let mut world = World::forward("");
    make_pipe(&world.proxy, "list");
    world.proxy.write_configuration("", LIST);
    world.proxy.signal(Signal::HUP);
    let _list = list_being_read(&world.proxy, "list");
    world.proxy.signal(Signal::TERM);
    wait::until("an order that is heard", || {
        world.proxy.output().contains("Shutting down").then_some(())
    });
    assert!(world.proxy.wait_end().success());
}

/// Rules, logs and signals do not wait for a directory that hangs; that it does is told.
#[test]
fn new_rules_are_in_force_while_a_store_hangs() {
    let mut world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(60));
    make_pipe(&world.proxy, "purges");
    let hanging = "cache_dir ring {dir}/ring 64\npurge_log {dir}/purges\n";
    for denied in ["/one", "/two"] {
        let rule =
            format!("acl denied urlpath_regex ^{denied}\nhttp_access deny denied\n{hanging}");
        world.proxy.write_configuration("", &rule);
        world.proxy.signal(Signal::HUP);
        wait::until("the rule", || (world.get(denied).status() == 403).then_some(()));
        let _ = world.get("/a").expect(200);
    }
    world.proxy.signal(Signal::USR1);
    wait::until("a rotation", || world.proxy.output().contains("Logs rotated").then_some(()));
    let told = "cache directories are not reconfigured within";
    wait::until("a word about it", || world.proxy.output().contains(told).then_some(()));
    assert!(!world.proxy.output().contains("Reconfigured"));
    world.proxy.signal(Signal::TERM);
    wait::until("an order that is heard", || {
        world.proxy.output().contains("Shutting down").then_some(())
    });
    assert!(world.proxy.wait_end().success());
}

/// An order to end is obeyed while the first request waits for an index that cannot be read.
#[test]
fn a_start_that_hangs_in_a_store_does_not_keep_the_end() {
    let mut world = World::forward("cache_dir aufs {dir}/store 64\n");
    world.proxy.kill();
    // The search for objects hangs where this is opened, as a disk may.
    let store = world.proxy.path("store");
    for log in ["swap.state", "swap.state.last-clean"] {
        let _ = fs::remove_file(store.join(log)); // it may not have got there
    }
    fs::create_dir_all(store.join("00/00")).expect("a directory");
    let object = store.join("00/00/00000007");
    make_pipe_at(&object);
    let before = world.proxy.output().len();
    world.proxy.launch();
    world.proxy.signal(Signal::TERM);
    let output = || world.proxy.output()[before..].to_owned();
    wait::until("an order that is heard", || output().contains("Shutting down").then_some(()));
    assert!(!output().contains("Serving while"), "{}", output());
    let _disk_works = fs::File::options().read(true).write(true).open(&object).expect("a pipe");
    assert!(world.proxy.wait_end().success());
}

/// The same while a store is being opened, before there is anything to serve with.
#[test]
fn a_start_that_hangs_in_opening_a_store_does_not_keep_the_end() {
    for (lines, pipe) in [
        ("cache_dir ring {dir}/store 64\npurge_log {dir}/purges\n", "purges"),
        ("cache_dir rock {dir}/store 64\n", "store/humboldt.purges"),
        ("hosts_file {dir}/hosts\n", "hosts"),
    ] {
        for order in [Signal::TERM, Signal::INT] {
            let mut world = World::forward(lines);
            world.proxy.kill();
            let _ = fs::remove_file(world.proxy.path(pipe));
            // To open it hangs, as a disk may.
            make_pipe(&world.proxy, pipe);
            world.proxy.launch();
            world.proxy.signal(order);
            assert!(world.proxy.wait_end().success(), "{lines}");
            let said = world.proxy.output();
            assert!(said.contains("before cache directories have been opened"), "{said}");
            assert!(!world.proxy.path("pid").exists());
        }
    }
}

/// A store that a disk opens in time can be closed.
#[test]
fn an_order_that_comes_while_a_store_is_opened_waits_for_it_within_shutdown_lifetime() {
    let lines =
        "cache_dir aufs {dir}/store 64\nhosts_file {dir}/hosts\nshutdown_lifetime 1 minute\n";
    let mut world = World::forward(lines);
    world.proxy.kill();
    let hosts = world.proxy.path("hosts");
    let _ = fs::remove_file(&hosts); // it may not be there
    make_pipe(&world.proxy, "hosts");
    let before = world.proxy.output().len();
    world.proxy.launch();
    world.proxy.signal(Signal::TERM);
    let told = "before cache directories have been opened";
    wait::until("an order that is heard", || {
        world.proxy.output()[before..].contains(told).then_some(())
    });
    // The disk works again.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let disk = wait::until("somebody who opens the hosts", || {
        rustix::fs::open(&hosts, flags, rustix::fs::Mode::empty()).ok()
    });
    drop(disk);
    assert!(world.proxy.wait_end().success());
}

#[test]
fn the_first_request_after_a_clean_restart_is_a_hit() {
    for scheme in ["ring", "rock", "coss", "aufs", "ufs", "diskd"] {
        let mut world =
            World::forward(&format!("cache_mem 0\ncache_dir {scheme} {{dir}}/store 64\n"));
        world.origin.on("/a", Reply::ok("hello").cachable(60));
        wait::until("a hit", || (world.get("/a").expect(200).cache() == "HIT").then_some(()));
        for _ in 0..3 {
            world.proxy.restart();
            assert_eq!(world.get("/a").expect(200).cache(), "HIT", "{scheme}");
        }
    }
}
