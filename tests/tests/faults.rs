//! The machine does not play along: ports in use, old pid files, unusable stores, a full disk, few
//! rights.

use humboldt_tests::wait::{free_address, start, until};
use humboldt_tests::{Client, Origin, Reply, World, proxy};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

#[test]
fn a_port_in_use_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let folder = proxy::open_folder();
    let path = folder.path().join("squid.conf");
    let dir = folder.path().display();
    fs::write(
        &path,
        format!("http_port {address}\npid_filename {dir}/pid\ncache_log {dir}/cache.log\naccess_log none\n"),
    )
    .expect("a file");
    let output = proxy::run(&["-N", "-f", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let log = fs::read_to_string(folder.path().join("cache.log")).unwrap_or_default();
    assert!(!output.status.success());
    assert!(format!("{said}{log}").contains(&address.port().to_string()), "{said}{log}");
}

#[test]
fn a_second_process_with_the_same_pid_file_does_not_start() {
    let world = World::forward("");
    let output = proxy::run(&["-N", "-f", &world.proxy.configuration()]);
    assert!(!output.status.success());
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
}

#[test]
fn a_stale_pid_file_is_no_obstacle() {
    let mut world = World::forward("");
    world.proxy.kill();
    assert!(world.proxy.path("pid").exists());
    world.proxy.launch();
    world.origin.on("/a", Reply::ok("x"));
    let _ = world.get("/a").expect(200);
}

/// A program started by hand, where the usual start would create stores first or have too many
/// rights.
struct ByHand {
    child: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl ByHand {
    /// Starts `command`, which gets the options for a configuration with these lines.
    fn start(mut command: Command, lines: &str) -> Self {
        let (folder, address) = (proxy::open_folder(), free_address());
        let dir = folder.path().display().to_string();
        let configuration = folder.path().join("squid.conf");
        let text = format!(
            "http_port {address}\nshutdown_lifetime 1 seconds\n{lines}\nhttp_access allow all\n"
        );
        fs::write(&configuration, text.replace("{dir}", &dir)).expect("a file");
        let output = fs::File::create(folder.path().join("output")).expect("a file for output");
        command.arg("-N").arg("-f").arg(&configuration).stdin(Stdio::null());
        let child =
            start(command.stdout(output.try_clone().expect("a second handle")).stderr(output));
        let mut started = Self { child: child.expect("the program starts"), address, folder };
        until("the proxy to accept connections", || {
            if let Ok(Some(status)) = started.child.try_wait() {
                panic!("it ended with {status}:\n{}", started.said());
            }
            TcpStream::connect(address).ok()
        });
        started
    }

    /// Its log and its output.
    fn said(&self) -> String {
        let text =
            |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text("cache.log") + &text("output")
    }

    fn get(&self, url: &str) -> humboldt_tests::Response {
        Client::to(self.address).request("GET", url, &[], b"").response()
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_unusable_store_does_not_stop_the_service() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("x").cachable(60));
    let folder = proxy::open_folder();
    let file = folder.path().join("not-a-directory");
    fs::write(&file, "").expect("a file");
    let lines = format!(
        "pid_filename {{dir}}/pid\naccess_log none\ncache_log {{dir}}/cache.log\ncache_dir ufs {} 100 16 256\n",
        file.display()
    );
    let started = ByHand::start(Command::new(proxy::program()), &lines);
    let _ = started.get(&origin.url("/a")).expect(200);
    let _ = started.get(&origin.url("/a")).expect(200);
    assert_eq!(origin.count("/a"), 1, "memory goes on caching");
    until("a word about the store", || started.said().contains("not-a-directory").then_some(()));
}

#[test]
fn a_user_without_rights_needs_no_writable_directory_but_the_cache() {
    if proxy::is_squid() {
        return; // it leaves shared memory behind that no other user can open
    }
    let origin = Origin::new();
    origin.on("/a", Reply::ok("x").cachable(60));
    let folder = proxy::open_folder();
    let copy = folder.path().join("humboldt"); // the build directory may be closed to other users
    fs::copy(proxy::program(), &copy).expect("a copy of the program");
    // A process that another test was just starting may hold the copy open for writing, for a
    // moment.
    until("the copy to be executable", || Command::new(&copy).arg("--version").output().ok());
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command
    } else {
        Command::new(&copy)
    };
    command.current_dir("/").env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let store = folder.path().join("store");
    fs::create_dir(&store).expect("a directory");
    fs::set_permissions(&store, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("open to all");
    let lines = format!(
        "pid_filename none\naccess_log stdio:/dev/stdout\ncache_log /dev/stderr\ncache_dir ufs {} 100 4 4\n",
        store.display()
    );
    let started = ByHand::start(command, &lines);
    let _ = started.get(&origin.url("/a")).expect(200);
    let _ = started.get(&origin.url("/a")).expect(200);
    until("the access log", || started.said().contains("/a").then_some(()));
    assert_eq!(origin.count("/a"), 1);
}

/// Mounts a file system of 2 MB; only root can, and not everywhere.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=0777", "tmpfs"])
            .arg(&path)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_hits_and_nothing_else() {
    let folder = proxy::open_folder();
    let Some(disk) = SmallDisk::mount(folder.path().join("disk")) else {
        eprintln!("skipped: no right to mount a small file system");
        return;
    };
    let store = disk.0.join("cache");
    let lines = format!(
        "cache_dir ufs {} 100 4 4\ncache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n",
        store.display()
    );
    let world = World::forward(&lines);
    let body = |index: usize| format!("object {index} ").repeat(5_000);
    for index in 0..100 {
        let path = format!("/{index}");
        world.origin.on(&path, Reply::ok(body(index)).cachable(3_600));
        assert!(world.get(&path).expect(200).text() == body(index));
    }
    for index in 0..100 {
        assert!(
            world.get(&format!("/{index}")).expect(200).text() == body(index),
            "object {index} is wrong"
        );
    }
}
