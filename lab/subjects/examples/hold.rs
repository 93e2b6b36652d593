//! Starts a subject and holds it until standard input ends: for looking around by hand, and for the
//! tests.
//!
//! ```text
//! hold SUBJECT ORIGIN [FILE_SYSTEM]      e.g.: hold squid:diskd 127.0.0.1:8080 ext4
//! ```
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use humboldt_lab_subjects::{
    Environment, EnvironmentPlan, Host, Keeper, StartPlan, StoreKind, SubjectFile, keeper_main,
    manifest, start,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};

/// Small, because this is for looking.
const CACHE_BYTES: u64 = 50 << 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["keeper"] => Ok(keeper_main()),
        [subject, origin] => hold(subject, origin, None).map(|()| ExitCode::SUCCESS),
        [subject, origin, file_system] => {
            hold(subject, origin, Some(file_system)).map(|()| ExitCode::SUCCESS)
        }
        _ => Err("usage: hold SUBJECT ORIGIN [FILE_SYSTEM]".into()),
    }
}

fn hold(subject: &str, origin: &str, file_system: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("keeper");
    let keeper = Keeper::start(command)?;
    let host = Host::current();
    let store_kind = match file_system {
        None => StoreKind::Folder(None),
        Some(name) => StoreKind::Device {
            file_system: name.to_owned(),
            size_bytes: None,
            mount_options: vec!["noatime".to_owned()],
            disk: None,
        },
    };
    let plan = EnvironmentPlan {
        host: host.clone(),
        parent: None,
        keep_folder: false,
        stores: 1,
        cache_bytes: CACHE_BYTES,
        store_kind,
        throttle: None,
        dirty_bytes_max: None,
    };
    let mut environment = Environment::prepare(&plan, &keeper)?;
    let file = SubjectFile::builtin(subject).ok_or("no such family")??;
    let plan = StartPlan {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        origins: vec![origin.parse()?],
        mode: None,
        cache_bytes: CACHE_BYTES,
        memory_bytes: StartPlan::MEMORY_BYTES,
        cores: Vec::new(),
        cpu_quota: None,
        cpu_speed: None,
        memory_limit_bytes: None,
        words: BTreeMap::new(),
        tls: None,
    };
    let running = start(&file, &mut environment, &plan, &keeper)?;
    for (name, value) in
        manifest(env!("CARGO_PKG_VERSION"), &host, Some(&environment), &running).facts
    {
        println!("{name}: {value}");
    }
    println!("{:?}", running.resources());
    println!("folder {}", environment.folder().display());
    println!("pid {}", running.pid().unwrap_or(0));
    println!("listens {}", running.address());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    println!("{:?}", running.stop()?);
    environment.remove()?;
    Ok(())
}
