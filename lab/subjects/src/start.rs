//! Starting a subject.

use crate::address::HeldAddress;
use crate::command::{command_line, run_command};
use crate::control_group::Groups;
use crate::environment::io;
use crate::host::User;
use crate::processes::{MARK, Tree};
use crate::processor::{Steady, SteadySpeed, allowed_cores, core_set};
use crate::resources::{Meter, Watch};
use crate::running::{Registered, Running, Started};
use crate::subject_tls::{SubjectTls, TLS_FILES};
use crate::template::{Words, expand};
use crate::undo::Undo;
use crate::words::{given_words, own_words};
use crate::{
    Environment, Host, Keeper, Mode, Skipped, SubjectError, SubjectFile, SubjectTlsWay, provenance,
};
use humboldt_lab_record::Build;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time for a version command.
const VERSION_WITHIN: Duration = Duration::from_secs(10);
/// Time for each preparing command: creating the folders of a large store on a slow device.
const PREPARE_WITHIN: Duration = Duration::from_secs(600);
/// Time for one attempt to reach a subject.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(2);
/// Time between two looks of a wait.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The file of the subject's own output, in the run folder.
const OUTPUT: &str = "output.log";
/// Length of each log that is searched for refusals, in bytes.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Writes its own number into the groups and becomes the program: so no process of it is ever
/// outside.
const JOIN_GROUPS: &str = r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@""#;

/// The start of a subject.
#[derive(Clone, Debug)]
pub struct StartPlan {
    /// Its address. Port 0: a free one.
    pub address: SocketAddr,
    /// The servers behind it.
    pub origins: Vec<SocketAddr>,
    /// The way from clients to it; `None`: that of its file.
    pub mode: Option<Mode>,
    /// Size of all its stores together in bytes.
    pub cache_bytes: u64,
    /// Memory for objects in bytes, where a cache has such a setting. [`StartPlan::MEMORY_BYTES`]
    /// unless there is a reason.
    pub memory_bytes: u64,
    /// Cores it may run on; empty: all.
    pub cores: Vec<usize>,
    /// Limit of its CPU time, in cores. Needs root.
    pub cpu_quota: Option<f64>,
    /// A processor of a steady speed instead, however fast the machine is at the moment. Needs
    /// root.
    pub cpu_speed: Option<SteadySpeed>,
    /// Limit of all its memory in bytes, with the page cache of the files that it reads and writes.
    /// Needs root.
    pub memory_limit_bytes: Option<u64>,
    /// Other values for words that its file defines.
    pub words: BTreeMap<String, String>,
    /// It ends TLS.
    pub tls: Option<SubjectTls>,
}

impl StartPlan {
    /// 64 MB: objects in transit at the peak fit (thousands of open requests of some 11 KB, which
    /// Squid counts here too), and hits from memory do not hide the store, which the runs compare.
    pub const MEMORY_BYTES: u64 = 64 << 20;
}

/// Writes the configuration, creates the stores, starts the subject and waits until it is ready.
///
/// # Errors
/// One line with the reason, and the last lines of the subject's logs.
pub fn start(
    file: &SubjectFile,
    environment: &mut Environment,
    plan: &StartPlan,
    keeper: &Keeper,
) -> Result<Running, SubjectError> {
    let mut start = Start::new(file, environment, plan)?;
    start.write_files()?;
    plan.tls.as_ref().map_or(Ok(()), |tls| tls.write(&start.folder))?;
    environment.give_to(&start.user)?;
    let patience = Duration::from_secs(u64::from(file.content.stop_after_s));
    let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let end = Undo::End {
        mark: start.mark.clone(),
        root: None,
        pids: BTreeSet::new(),
        patience_ms: patience_ms.min(5000),
    };
    let leftovers = start.keep_leftovers(keeper)?;
    let registered =
        Registered::new(keeper.keep(&environment.host, end)?, &start.mark, patience_ms.min(5000));
    start.limit_cpu(environment, plan, keeper);
    let steady = start.steady_cpu(environment, plan, keeper)?;
    start.limit_memory(environment, plan, keeper);
    for command in &file.content.prepare {
        start.prepare(command)?;
    }
    environment.settle()?;
    start.refuse_pretenders()?;
    let groups = std::mem::take(&mut start.groups);
    // Declared after the groups, so that it ends before them if the start fails.
    let steady = steady.inspect(Steady::begin);
    let joined: Vec<PathBuf> =
        environment.groups.to_join().chain(groups.to_join()).map(Path::to_path_buf).collect();
    let child = start.spawn(&joined, &plan.cores)?;
    let _address = start.address.clone();
    let started = Started { child, _address, registered, patience, leftovers, steady, groups };
    let mut running = start.watch(started, environment)?;
    start.wait_until_ready(&mut running)?;
    start.refuse_pretenders()?;
    Ok(running)
}

/// Everything that is known before the first process starts.
struct Start<'a> {
    file: &'a SubjectFile,
    folder: PathBuf,
    words: Words,
    mark: String,
    user: User,
    address: HeldAddress,
    mode: Mode,
    host: Host,
    logs: Vec<PathBuf>,
    files: BTreeMap<String, String>,
    facts: Vec<(String, String)>,
    build: Option<Build>,
    skipped: Vec<Skipped>,
    groups: Groups,
}

impl<'a> Start<'a> {
    fn new(
        file: &'a SubjectFile,
        environment: &Environment,
        plan: &StartPlan,
    ) -> Result<Self, SubjectError> {
        let program = file.find()?;
        let mode = plan.mode.unwrap_or(file.mode());
        let wrong = |what: String| SubjectError::Environment(format!("{}: {what}", file.name()));
        if !file.has_mode(mode) {
            return Err(wrong(format!(
                "it cannot be used as {mode}: leave out the mode, or choose another subject"
            )));
        }
        if plan.origins.is_empty() {
            return Err(wrong("there is no server behind it".to_owned()));
        }
        if let Some(tls) = plan.tls.as_ref().filter(|tls| !file.has_tls(tls.way)) {
            return Err(wrong(format!("its file has no {} part", when_name(tls.way))));
        }
        check_cores(&plan.cores).map_err(wrong)?;
        let user = user(file, &environment.host)?;
        let address = HeldAddress::choose(plan.address)?;
        let stores = stores(file, environment)?;
        let mark = instance_name();
        let mut words = given_words(plan, &stores, address.address());
        words.insert("program".to_owned(), program.display().to_string());
        words.insert("instance".to_owned(), mark.clone());
        words.insert("user".to_owned(), user.name.clone());
        words.insert("dir".to_owned(), environment.folder().display().to_string());
        for (word, name) in TLS_FILES {
            let path = environment.folder().join(name);
            words.insert(word.to_owned(), path.display().to_string());
        }
        own_words(&file.content, mode, environment.host.is_root, &stores, plan, &mut words)
            .map_err(|what| SubjectError::File { file: file.name().to_owned(), what })?;
        let folder = environment.folder().to_path_buf();
        let logs = std::iter::once(OUTPUT).chain(file.content.logs.iter().map(String::as_str));
        let mut start = Self {
            file,
            logs: logs.map(|name| folder.join(name)).collect(),
            folder,
            words,
            mark,
            user,
            address,
            mode,
            host: environment.host.clone(),
            files: BTreeMap::new(),
            facts: Vec::new(),
            build: None,
            skipped: Vec::new(),
            groups: Groups::default(),
        };
        start.collect_facts(plan, &program);
        Ok(start)
    }

    fn collect_facts(&mut self, plan: &StartPlan, program: &Path) {
        let version = self.version();
        self.build = Some(provenance::build_of(program, &version));
        let mut facts = vec![
            ("Subject".to_owned(), format!("{}: {}", self.file.name(), self.file.description())),
            ("Version".to_owned(), version.clone()),
            ("Program".to_owned(), program.display().to_string()),
            ("Mode".to_owned(), self.mode.to_string()),
            ("Runs as".to_owned(), self.user.name.clone()),
            ("Memory for objects".to_owned(), format!("{} MB", plan.memory_bytes >> 20)),
        ];
        if !plan.cores.is_empty() {
            let cores: Vec<String> = plan.cores.iter().map(usize::to_string).collect();
            facts.push(("Cores".to_owned(), cores.join(", ")));
        }
        for (name, value) in &plan.words {
            facts.push((format!("Option {name}"), value.clone()));
        }
        self.facts.append(&mut facts);
    }

    /// The first line of the program's version output.
    fn version(&self) -> String {
        let output = self
            .command(&self.file.content.version)
            .and_then(|command| run_command(command, VERSION_WITHIN));
        let (out, err) = output.unwrap_or_default();
        let line = out.lines().chain(err.lines()).find(|line| !line.trim().is_empty());
        line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
    }

    fn expand(&self, template: &str) -> Result<String, SubjectError> {
        expand(template, &self.words)
            .map_err(|what| SubjectError::File { file: self.file.name().to_owned(), what })
    }

    fn command(&self, template: &[String]) -> Result<Command, SubjectError> {
        let mut words = template.iter().map(|word| self.expand(word));
        let program = words.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut command = Command::new(program);
        for word in words {
            command.arg(word?);
        }
        for (name, value) in &self.file.content.environment {
            command.env(name, self.expand(value)?);
        }
        command
            .env(MARK, &self.mark)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .process_group(0);
        Ok(command)
    }

    fn write_files(&mut self) -> Result<(), SubjectError> {
        for name in &self.file.content.folders {
            let path = self.folder.join(name);
            fs::create_dir_all(&path).map_err(io("make the folder", &path))?;
        }
        for (name, template) in &self.file.content.files {
            let text = self.expand(template.trim_start_matches('\n'))?;
            let path = self.folder.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(io("make the folder", folder))?;
            }
            fs::write(&path, &text).map_err(io("write", &path))?;
            self.files.insert(name.clone(), text);
        }
        // Logs of an earlier subject would explain the wrong failure.
        for log in &self.logs {
            match fs::remove_file(log) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove the old log", log)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keep_leftovers(&self, keeper: &Keeper) -> Result<Vec<crate::keeper::Kept>, SubjectError> {
        let mut kept = Vec::new();
        for pattern in &self.file.content.leftovers {
            let pattern = self.expand(pattern)?;
            if let Some((folder, prefix)) = pattern.trim_end_matches('*').rsplit_once('/') {
                let undo = Undo::RemoveFiles(PathBuf::from(folder), prefix.to_owned());
                kept.push(keeper.keep(&self.host, undo)?);
            }
        }
        Ok(kept)
    }

    fn limit_cpu(&mut self, environment: &Environment, plan: &StartPlan, keeper: &Keeper) {
        let Some(cores) = plan.cpu_quota else { return };
        match self.groups.limit_cpu(&environment.host, keeper, cores) {
            Ok(()) => self.facts.push(("CPU quota".to_owned(), format!("{cores} cores"))),
            Err(skipped) => self.skipped.push(skipped),
        }
    }

    /// Where groups cannot be made, the option is skipped as others are. Whether the machine is
    /// fast enough is another matter at each start: then the same runs would have different
    /// processors, so that is an error.
    fn steady_cpu(
        &mut self,
        environment: &Environment,
        plan: &StartPlan,
        keeper: &Keeper,
    ) -> Result<Option<Steady>, SubjectError> {
        let Some(wanted) = plan.cpu_speed else { return Ok(None) };
        let what = format!("CPU speed of {:.2}", wanted.speed);
        let quota = match self.groups.quota(&environment.host, keeper) {
            Ok(quota) => quota,
            Err(reason) => {
                self.skipped.push(Skipped::new(what, reason));
                return Ok(None);
            }
        };
        let steady = Steady::start(wanted, quota, &plan.cores)
            .map_err(|reason| SubjectError::Environment(format!("{what}: {reason}")))?;
        let fact = |name: &str, speed: f64| (name.to_owned(), format!("{speed:.2}"));
        self.facts.push(fact("CPU speed", wanted.speed));
        self.facts.push(fact("CPU speed of the machine's cores", steady.machine()));
        Ok(Some(steady))
    }

    fn limit_memory(&mut self, environment: &Environment, plan: &StartPlan, keeper: &Keeper) {
        let Some(bytes) = plan.memory_limit_bytes else { return };
        match self.groups.limit_memory(&environment.host, keeper, bytes) {
            Ok(()) => self.facts.push(("Memory limit".to_owned(), format!("{bytes} bytes"))),
            Err(skipped) => self.skipped.push(skipped),
        }
    }

    fn prepare(&self, template: &[String]) -> Result<(), SubjectError> {
        let (out, err) = run_command(self.command(template)?, PREPARE_WITHIN)?;
        let path = self.folder.join(OUTPUT);
        let log = File::options().append(true).create(true).open(&path);
        log.and_then(|mut log| log.write_all(format!("{out}{err}").as_bytes()))
            .map_err(io("write", &path))
    }

    /// A subject that reports another identity must not be measured under this name.
    fn refuse_pretenders(&self) -> Result<(), SubjectError> {
        for log in &self.logs {
            let Ok(file) = File::open(log) else { continue };
            let mut bytes = Vec::new();
            file.take(LOG_BYTES_MAX).read_to_end(&mut bytes).map_err(io("read", log))?;
            let text = String::from_utf8_lossy(&bytes);
            for refusal in &self.file.content.refuse {
                if let Some(line) = text.lines().find(|line| line.contains(&refusal.log)) {
                    let what =
                        format!("is not the expected program: {} ({})", refusal.say, line.trim());
                    return Err(self.failed(what));
                }
            }
        }
        Ok(())
    }

    fn failed(&self, what: String) -> SubjectError {
        SubjectError::Subject { subject: self.file.name().to_owned(), what, log: String::new() }
    }

    fn spawn(&mut self, groups: &[PathBuf], cores: &[usize]) -> Result<Child, SubjectError> {
        let path = self.folder.join(OUTPUT);
        let output =
            File::options().append(true).create(true).open(&path).map_err(io("write", &path))?;
        let copy = output.try_clone().map_err(io("write", &path))?;
        let plain = self.command(&self.file.content.start)?;
        let line = command_line(&plain);
        self.facts.push(("Command".to_owned(), line.clone()));
        let mut command = if groups.is_empty() { plain } else { joining(&plain, groups) };
        command.env(MARK, &self.mark).current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::null()).stdout(copy).stderr(output);
        spawn_on(cores, command)
            .map_err(|error| self.failed(format!("cannot be started with `{line}`: {error}")))
    }

    fn watch(
        &mut self,
        mut started: Started,
        environment: &Environment,
    ) -> Result<Running, SubjectError> {
        let root =
            i32::try_from(started.child.id()).map_err(|error| self.failed(error.to_string()))?;
        let told = started.registered.set_root(root);
        let tree = Tree::new(&self.host.proc, Some(&self.mark), Some(root));
        let mut running = Running {
            name: self.file.name().to_owned(),
            address: self.address.address(),
            mode: self.mode,
            started: None,
            attached: None,
            watch: None,
            stored: None,
            logs: self.logs.clone(),
            files: std::mem::take(&mut self.files),
            facts: std::mem::take(&mut self.facts),
            build: self.build.take(),
            skipped: std::mem::take(&mut self.skipped),
        };
        let registered = started.registered.clone();
        // From here on the subject ends with this value, whatever fails.
        running.started = Some(started);
        told?;
        let page = self.file.content.stored.as_ref();
        let page = page.map(|page| page.filled(self.mode, |text| self.expand(text)));
        running.stored = page.transpose()?.flatten();
        let seen = std::cell::Cell::new(0);
        let watch =
            Watch::start(Meter::new(&self.host, tree, environment.devices()), move |tree| {
                if seen.replace(tree.ever().len()) != tree.ever().len() {
                    // Without the keeper the run goes on; its end will tell.
                    let _ = registered.update(tree.ever().clone());
                }
            });
        running.watch = Some(watch.map_err(io("start a thread to watch", &self.folder))?);
        Ok(running)
    }

    fn wait_until_ready(&self, running: &mut Running) -> Result<(), SubjectError> {
        let limit = Duration::from_secs(u64::from(self.file.content.ready_after_s));
        let url = self.file.content.ready_url.as_ref().map(|url| self.expand(url)).transpose()?;
        let started = Instant::now();
        let address = self.address.address();
        loop {
            running.check()?;
            let is_ready = TcpStream::connect_timeout(&address, ATTEMPT_WITHIN).is_ok()
                && url.as_ref().is_none_or(|url| answers(address, url));
            if is_ready {
                // So that its helpers are known before the first second is over.
                return running.notice_helpers();
            }
            if started.elapsed() > limit {
                return Err(running.failed(&format!(
                    "does not accept connections at {address} within {} s",
                    limit.as_secs()
                )));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// The part of a subject's file that says how it ends TLS.
fn when_name(way: SubjectTlsWay) -> &'static str {
    match way {
        SubjectTlsWay::Accelerator => "[when.tls]",
        SubjectTlsWay::Intercept => "[when.intercept]",
    }
}

/// The same command, run by a shell that joins the groups first.
pub(crate) fn joining(plain: &Command, groups: &[PathBuf]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", JOIN_GROUPS, "lab"]).args(groups).arg("--");
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}

/// Spawns from a thread that is pinned to these cores, since a child inherits that; this thread
/// stays as it is.
fn spawn_on(cores: &[usize], mut command: Command) -> std::io::Result<Child> {
    if cores.is_empty() {
        return command.spawn();
    }
    let set = core_set(cores);
    let spawned = std::thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &set)?;
        command.spawn()
    });
    spawned.join().unwrap_or_else(|_| Err(std::io::Error::other("the starting thread died")))
}

fn check_cores(cores: &[usize]) -> Result<(), String> {
    let allowed = allowed_cores()?;
    let is_allowed = |core: usize| core < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(core);
    match cores.iter().find(|&&core| !is_allowed(core)) {
        None => Ok(()),
        Some(core) => Err(format!(
            "core {core}: this machine lets the laboratory use {} cores, from 0 on",
            allowed.count()
        )),
    }
}

fn user(file: &SubjectFile, host: &Host) -> Result<User, SubjectError> {
    match &file.content.user {
        Some(name) if host.is_root => User::named(name).ok_or_else(|| {
            SubjectError::Environment(format!(
                "{}: there is no user `{name}` here: install the package `{}`, or name another user in the file",
                file.name(),
                file.content.package
            ))
        }),
        _ => Ok(User::current()),
    }
}

/// The stores that it uses of those that there are.
fn stores(file: &SubjectFile, environment: &Environment) -> Result<Vec<PathBuf>, SubjectError> {
    let stores = environment.stores();
    let max = usize::try_from(file.stores_max()).unwrap_or(usize::MAX);
    if max == 0 {
        return Ok(Vec::new());
    }
    if stores.len() > max {
        return Err(SubjectError::Environment(format!(
            "{} can use {max} of the {} stores: ask for fewer",
            file.name(),
            stores.len()
        )));
    }
    Ok(stores)
}

/// Letters and digits, different from those of every other subject that runs.
fn instance_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("lab{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether a request for this URL is answered by HTTP at all.
fn answers(address: SocketAddr, url: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, ATTEMPT_WITHIN) else { return false };
    let limited = stream.set_read_timeout(Some(ATTEMPT_WITHIN)).is_ok();
    let request = format!("GET {url} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let mut start = [0; 7];
    limited
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut start).is_ok()
        && start == *b"HTTP/1."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let text = || "-----BEGIN PRIVATE KEY-----".to_owned();
        let tls = SubjectTls {
            way: SubjectTlsWay::Accelerator,
            authority_pem: text(),
            certificate_pem: text(),
            key_pem: text(),
            intercept_pem: text(),
        };
        tls.write(folder.path()).expect("files");
        for (name, _) in tls.files() {
            let mode = fs::metadata(folder.path().join(name)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!format!("{tls:?}").contains("PRIVATE"));
    }

    #[test]
    fn only_cores_that_there_are_are_used() {
        assert_eq!(check_cores(&[]), Ok(()));
        for core in [rustix::thread::CpuSet::MAX_CPU - 1, usize::MAX] {
            assert!(
                check_cores(&[core]).expect_err("no machine has it").contains("cores"),
                "{core}"
            );
        }
    }

    #[test]
    fn a_started_process_inherits_the_cores_and_this_thread_keeps_its_own() {
        let allowed = rustix::thread::sched_getaffinity(None).expect("a set of cores");
        let last = (0..rustix::thread::CpuSet::MAX_CPU)
            .rfind(|&core| allowed.is_set(core))
            .expect("a core");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep Cpus_allowed_list: /proc/self/status"]).stdout(Stdio::piped());
        let output =
            spawn_on(&[last], command).expect("a shell").wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.split_ascii_whitespace().last(), Some(last.to_string().as_str()), "{text}");
        let after = rustix::thread::sched_getaffinity(None).expect("a set of cores");
        assert_eq!(after.count(), allowed.count());
    }

    #[test]
    fn the_shell_that_joins_groups_becomes_the_program() {
        let group = tempfile::tempdir().expect("a folder");
        fs::write(group.path().join("cgroup.procs"), "").expect("a file");
        let mut plain = Command::new("/bin/sh");
        plain.args(["-c", "echo $$ \"$1\"", "x", "a  b"]);
        let mut command = joining(&plain, &[group.path().to_path_buf()]);
        let child = command.stdout(Stdio::piped()).spawn().expect("a shell");
        let id = child.id();
        let output = child.wait_with_output().expect("its output");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id} a  b\n"));
        let joined = fs::read_to_string(group.path().join("cgroup.procs")).expect("a file");
        assert_eq!(joined, format!("{id}\n"));
    }
}
