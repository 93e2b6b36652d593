//! What the program says of itself, and how it refuses what makes no sense.

use crate::support::{Lab, folder, lab, shared, write};
use std::net::TcpListener;

/// Every command, with options that its help must name.
const COMMANDS: [(&str, &[&str]); 11] = [
    (
        "peak",
        &[
            "--attach",
            "--quick",
            "--controller",
            "--fs",
            "--agents",
            "--serve",
            "--out",
            "--fill",
            "--timeout",
        ],
    ),
    ("bang", &["--proxy", "--generate", "--connections", "--passes", "--log"]),
    ("run", &["--dry-run", "--retry-failed", "--out"]),
    ("compare", &["--out"]),
    ("calibrate", &["--workload", "--lab-cores"]),
    (
        "simulate",
        &["--generate", "--policy", "--size", "--format", "--no-optimum", "oracleGeneral"],
    ),
    ("subjects", &["[NAME]"]),
    ("workloads", &["--ideal"]),
    ("agent", &["--listen", "--token", "--once"]),
    ("origin", &["--listen", "--no-think", "--origin-authority"]),
    ("load", &["--proxy", "--origins", "--tls"]),
];

#[test]
fn every_command_explains_itself() {
    let _machine = shared();
    let all = lab(["--help"]).with(0).out;
    for (command, options) in COMMANDS {
        assert!(all.contains(&format!("  {command} ")), "{command} is not in: {all}");
        let help = lab([command, "--help"]).with(0).out;
        for option in options {
            assert!(help.contains(option), "{command} --help does not name {option}: {help}");
        }
    }
    assert!(!all.contains("keeper"), "the keeper is nobody's command: {all}");
    assert!(lab(["--version"]).with(0).out.starts_with("humboldt-lab "));
}

#[test]
fn what_there_is_is_listed_and_shown() {
    let _machine = shared();
    let subjects = lab(["subjects"]).with(0).out;
    for name in
        ["squid:null", "squid:ufs", "squid:aufs", "squid:diskd", "squid:rock", "humboldt:ufs"]
    {
        assert!(
            subjects.lines().any(|line| line.starts_with(&format!("{name} "))),
            "{name}: {subjects}"
        );
    }
    for name in ["nginx", "varnish", "trafficserver"] {
        assert!(subjects.lines().any(|line| line.starts_with(name)), "{name}: {subjects}");
    }
    let workloads = lab(["workloads"]).with(0).out;
    for name in
        ["polymix-4", "webaxe-4", "datacomm-1", "uniform-unique", "package-mirror", "allow-list"]
    {
        let line = workloads.lines().find(|line| line.starts_with(&format!("{name} ")));
        assert!(line.is_some_and(|line| line.len() > name.len() + 10), "{name}: {workloads}");
    }
    // What is shown can be used.
    let own = folder();
    let shown = lab(["subjects", "varnish"]).with(0).out;
    let file = write(own.path(), "mine.toml", &shown);
    assert!(lab(["subjects", &file]).with(0).out.contains("the file is in order"));
    let shown = lab(["workloads", "datacomm-1"]).with(0).out;
    let file = write(own.path(), "work.toml", &shown);
    let ideal = lab(["workloads", &file, "--ideal", "20000"]).with(0).out;
    assert!(ideal.contains("% of plain GETs"), "{ideal}");
}

#[test]
fn installed_programs_have_a_version_and_others_a_package() {
    let _machine = shared();
    let subjects = lab(["subjects"]).with(0).out;
    let (_, here) = subjects.split_once("On this machine:").expect("a list of programs");
    for family in ["humboldt", "squid", "nginx", "varnish", "trafficserver"] {
        let line = here.lines().find(|line| line.starts_with(&format!("{family} ")));
        let line = line.unwrap_or_else(|| panic!("{family}: {here}"));
        assert!(line.contains(" (") || line.contains("not installed: "), "{line}");
    }
    let own = here.lines().find(|line| line.starts_with("humboldt ")).expect("it is in the list");
    let is_built = !own.contains("not installed: cargo build ");
    assert!(!is_built || own.contains("(Humboldt Cache: Version "), "its own version: {own}");
    // A description ends with its sentence.
    for line in lab(["workloads"]).with(0).out.lines().take_while(|line| !line.is_empty()) {
        assert!(line.ends_with('.') || !line.starts_with(' '), "{line}");
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn mistakes_in_an_experiment_have_line_column_and_remedy() {
    let _machine = shared();
    let own = folder();
    let file = |text: &str| write(own.path(), "bad.toml", text);
    let text = "title = 'T'\n[axes]\nsubject = ['squid:ufs']\n[common]\ncache-sise = '1GB'\n";
    lab(["run", &file(text)]).with(2).says(&["line 5, column 1", "`cache-sise`", "`cache-size`?"]);
    let text = text.replace("cache-sise = '1GB'", "cache-size = 'much'");
    lab(["run", &file(&text)]).with(2).says(&["line 5, column 14", "`much`", "64MB"]);
    let text = "title = 'T'\nrepeat = 3\n";
    lab(["run", &file(text)]).with(2).says(&["line 2, column 1", "`repeat`", "`repeats`"]);
}

#[test]
fn an_experiment_without_a_limit_says_what_it_fills() {
    let _machine = shared();
    let own = folder();
    let text = "title = 'T'\n[axes]\nsubject = ['humboldt:ufs', 'humboldt:ring']\n\
                [common]\ncache-size = '1MB'\n[full]\ncache-size = '20GB'\n";
    let file = write(own.path(), "full.toml", text);
    let said = lab(["run", &file, "--dry-run", "--full"]).with(0).out;
    assert!(said.contains("80 GB have to be filled") && said.contains(" at 10 MB/s"), "{said}");
}

#[test]
fn a_mount_option_is_told_from_an_option() {
    let _machine = shared();
    let said = lab(["peak", "squid:aufs", "--noatime"]).with(2).err;
    assert!(said.contains("--mount-options noatime") && !said.contains("'-- "), "{said}");
}

#[test]
fn mistakes_end_with_two_and_one_line() {
    let _machine = shared();
    let own = folder();
    let word = |name: &str, text: &str| write(own.path(), name, text);
    lab(["peak", "squib"]).with(2).says(&["squib", "humboldt-lab subjects"]);
    lab(["peak", "squid:afus"]).with(2).says(&["squid", "`afus`", "aufs"]);
    lab(["peak", "squid", "--workload", "polymax"]).with(2).says(&["polymax", "polymix-4"]);
    lab(["peak", "squid", "--sample", "1ms"]).with(2).says(&["--sample", "0.2 s"]);
    lab(["peak", "squid", "--lab-cores", "900"]).with(2).says(&["processor 900"]);
    lab(["peak", "squid", "--first-load", "1e30"]).with(2).says(&["first_load_per_s"]);
    lab(["peak", "squid", "--set", "threads", "--no-calibration"])
        .with(2)
        .says(&["--set", "NAME=VALUE"]);
    lab(["peak", &word("bad.toml", "name = 3\n")]).with(2).says(&["bad.toml"]);
    lab(["compare", "/nonexistent/run"]).with(2).says(&["/nonexistent/run"]);
    let path = own.path().to_str().expect("a plain name");
    lab(["compare", path]).with(2).says(&[path, "not a folder of a run"]);
    lab(["agent", "--listen", "0.0.0.0:0"]).with(2).says(&["--token"]);
    lab(["run", &word("empty.toml", "title = 'T'\n")]).with(2).says(&["empty.toml", "[axes]"]);
    lab(["run", "/nonexistent/file.toml"]).with(2).says(&["/nonexistent/file.toml"]);
    // What clap refuses takes more than a line, but no other code.
    assert!(lab(["peak"]).with(2).err.contains("<SUBJECT>"));
    assert!(lab(["peak", "squid", "--cache-size", "much"]).with(2).err.contains("64MB"));
}

#[test]
fn a_contradictory_workload_is_refused_with_file_and_line() {
    let _machine = shared();
    let own = folder();
    let right = lab(["workloads", "datacomm-1"]).with(0).out;
    let share = right.lines().find(|line| line.starts_with("share = ")).expect("a share");
    let recurrence =
        right.lines().find(|line| line.starts_with("recurrence = ")).expect("recurrence");
    for (name, text, words) in [
        ("shares.toml", right.replacen(share, "share = \"7 %\"", 1), &["share"][..]),
        (
            "twice.toml",
            right.replacen(recurrence, &format!("{recurrence}\nfixed_set = 10"), 1),
            &["fixed_set"],
        ),
        (
            "unknown.toml",
            right.replacen("[client]", "[client]\npatience = \"1 s\"", 1),
            &["patience"],
        ),
        ("unit.toml", right.replacen(recurrence, "recurrence = \"6 furlongs\"", 1), &["furlongs"]),
        ("broken.toml", right.replacen("[client]", "[client", 1), &[]),
    ] {
        assert_ne!(text, right, "{name} is to be spoilt");
        let file = write(own.path(), name, &text);
        let done = lab(["peak", "squid:null", "--workload", &file]).with(2);
        done.says(&[name]);
        done.says(words);
        assert!(
            done.complaint().contains("line ") || done.complaint().contains(".toml:"),
            "{}",
            done.complaint()
        );
    }
}

#[test]
fn a_taken_port_is_named() {
    let _machine = shared();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    lab(["peak", "squid:null", "--serve", &address]).with(2).says(&[&address, "in use"]);
    lab(["peak", "squid:null", "--no-calibration", "--origin", &address])
        .with(2)
        .says(&[&address, "in use"]);
    lab(["peak", "squid:null", "--origin", &address]).with(2).says(&[&address, "in use"]);
    lab(["origin", "--listen", &address]).with(2).says(&[&address, "in use"]);
    lab(["agent", "--listen", &address]).with(2).says(&[&address, "in use"]);
}

#[test]
fn someone_elses_folder_is_not_touched() {
    let _machine = shared();
    let own = folder();
    write(own.path(), "thesis.txt", "years of work");
    let path = own.path().to_str().expect("a plain name");
    lab(["peak", "squid:null", "--out", path]).with(2).says(&[path, "not empty"]);
    let names: Vec<_> = std::fs::read_dir(own.path()).expect("a folder").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let _machine = shared();
    let own = folder();
    let text = lab(["subjects", "varnish"]).with(0).out;
    let spoilt = text
        .replace("\"varnishd\"", "\"no-such-cache\"")
        .replace("\"varnish\"", "\"no-such-package\"");
    assert!(spoilt.contains("no-such-cache"), "{spoilt}");
    let file = write(own.path(), "mine.toml", &spoilt);
    let done = lab(["peak", &file, "--no-calibration"]);
    done.says(&["no-such-cache is not installed", "apt install no-such-package"]);
}

#[test]
fn the_banger_asks_for_what_it_reads() {
    let _machine = shared();
    let mut origin = Lab::start(["origin", "--workload", "fixed-1k", "--no-think"]);
    let line = origin.until_says("serving fixed-1k on ");
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    let urls: String =
        (0..200).map(|number| format!("http://{address}/l/0/0/{number:x}.bin\n")).collect();
    let own = folder();
    let log = own.path().join("log");
    let words = ["bang", "-n", "10", "--passes", "2", "--log", log.to_str().expect("a plain name")];
    let done = Lab::start_with_input(words, &urls).end().with(0);
    let right = |line: &&str| line.starts_with("pass ") && line.contains(" 200 ");
    assert_eq!(done.out.lines().filter(right).count(), 2, "each pass once: {}", done.out);
    assert!(!done.out.contains("status"), "only what is unusual: {}", done.out);
    assert!(done.out.contains("means little"), "200 URLs are few: {}", done.out);
    let logged = std::fs::read_to_string(&log).expect("a log");
    let requests = logged.lines().filter(|line| line.contains("/l/0/0/")).count();
    assert_eq!(requests, 400, "{logged}");
    origin.signal(rustix::process::Signal::INT);
    let served = origin.end().with(0).out;
    assert!(served.contains("400 requests"), "{served}");
}

#[test]
fn the_banger_makes_its_own_urls() {
    let _machine = shared();
    let own = folder();
    let out = own.path().join("out");
    let words =
        ["bang", "--generate", "300", "-n", "8", "--out", out.to_str().expect("a plain name")];
    let done = lab(words).with(0);
    assert!(done.out.contains("300"), "{}", done.out);
    assert!(out.join("report.html").exists());
}

/// `verify` starts it, and reads what it says.
#[test]
fn a_server_of_known_capacity_ends_with_its_input() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_humboldt-lab"));
    command.args(["known-server", "500"]);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert!(output.status.success() && lines.len() == 2, "{said}");
    assert!(lines[0].starts_with("http://127.0.0.1:"), "{said}");
    assert_eq!(lines[1], "0", "nobody asked it for anything");
}
