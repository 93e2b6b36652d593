//! Both programs on one configuration, one after the other.

use crate::requests::{Case, Origin, Verdict, play};
use crate::sets::RuleSet;
use humboldt_tests::proxy::{self, open_folder};
use humboldt_tests::wait::{end, free_listener, start, until};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Names with addresses, so that nobody asks a name server.
const HOSTS: &str = "192.0.2.1 a.example.com\n192.0.2.2 www.example.com\n192.0.2.3 example.com\n\
                     198.51.100.1 b.example.org\n2001:db8::1 six.example.net\n203.0.113.9 x.test\n";

/// The path of Squid, if it is installed.
pub(crate) fn squid() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin"]);
    folders.map(|folder| Path::new(folder).join("squid")).find(|file| file.is_file())
}

/// Sets of rules, each with requests for its port.
pub(crate) type Sets = [(RuleSet, Vec<Case>)];

/// The configuration of all sets.
fn configuration(sets: &Sets, ports: &[u16], origin: &Origin) -> String {
    let mut text = format!(
        "pid_filename {{dir}}/pid\naccess_log none\ncache_log {{dir}}/cache.log\ncoredump_dir {{dir}}\n\
         visible_hostname proxy.test\nshutdown_lifetime 0 seconds\nhosts_file {{dir}}/hosts\n\
         dns_nameservers 127.0.0.1\npinger_enable off\nmax_filedescriptors 1024\ncache_mem 32 MB\n\
         cache_peer 127.0.0.1 parent {} 0 no-query no-digest originserver name=origin\n\
         never_direct allow all\n",
        origin.address.port()
    );
    for (index, ((set, _), port)) in sets.iter().zip(ports).enumerate() {
        text += &set.text(index, *port);
    }
    for list in ["http_access", "adapted_http_access", "http_reply_access", "miss_access", "cache"]
    {
        text += &format!("{list} allow all\n");
    }
    text
}

/// The verdicts of Squid and of ours about each request of each set.
pub(crate) fn compare(sets: &Sets) -> Vec<Vec<(Verdict, Verdict)>> {
    let origin = Origin::new();
    let ports: Vec<u16> =
        sets.iter().map(|_| free_listener().local_addr().expect("its address").port()).collect();
    let text = configuration(sets, &ports, &origin);
    let squid = squid().expect("squid is installed");
    let theirs = play_all(&squid, &text, sets, &ports, &origin, "squid");
    let ours = play_all(proxy::program(), &text, sets, &ports, &origin, "ours");
    let pairs = theirs.into_iter().zip(ours);
    pairs.map(|(theirs, ours)| theirs.into_iter().zip(ours).collect()).collect()
}

fn play_all(
    program: &Path,
    text: &str,
    sets: &Sets,
    ports: &[u16],
    origin: &Origin,
    who: &str,
) -> Vec<Vec<Verdict>> {
    let _running = Running::start(program, text, ports[0]);
    let play_set = |(index, (_, cases)): (usize, &(RuleSet, Vec<Case>))| {
        let cases = cases.iter().enumerate();
        let play = |(number, case): (usize, &Case)| {
            play(case, ports[index], &format!("{who}-{index}-{number}"), origin)
        };
        cases.map(play).collect()
    };
    sets.iter().enumerate().map(play_set).collect()
}

/// A running program; dropping it ends it.
struct Running {
    child: Child,
    _folder: TempDir,
}

impl Running {
    fn start(program: &Path, text: &str, port: u16) -> Self {
        let folder = open_folder();
        let dir = folder.path().display().to_string();
        let (file, output) = (folder.path().join("squid.conf"), folder.path().join("output"));
        fs::write(&file, text.replace("{dir}", &dir)).expect("a configuration file");
        fs::write(folder.path().join("hosts"), HOSTS).expect("a hosts file");
        let into = fs::File::create(&output).expect("a file for output");
        let mut command = Command::new(program);
        // A service name of its own, because Squids of the same name share segments of memory.
        command.arg("-N").arg("-f").arg(&file);
        if program.ends_with("squid") {
            command.arg("-n").arg(format!("rules{port}"));
        }
        command.env("TZ", "UTC");
        command.stdin(Stdio::null()).stdout(into.try_clone().expect("a handle")).stderr(into);
        let child = start(&mut command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut running = Self { child, _folder: folder };
        until("the program to accept connections", || {
            if let Ok(Some(status)) = running.child.try_wait() {
                let said = fs::read_to_string(&output).unwrap_or_default();
                panic!("{} ended with {status}: {said}\n{text}", program.display());
            }
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
