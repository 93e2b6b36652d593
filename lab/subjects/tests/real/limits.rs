//! Processors and memory that are limited.

use crate::support::{Origin, keeper, plan, start_plan, traces_of};
use crate::{installed, is_root};
use humboldt_lab_record::Resources;
use humboldt_lab_subjects::{Environment, Running, StartPlan, SteadySpeed, StoreKind, start};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folders that a subject's own group of this controller may have, in both versions.
fn own_groups(running: &Running, controller: &str) -> [PathBuf; 2] {
    let pid = running.pid().expect("it was started");
    let member_of = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it lives");
    let own = format!("/humboldt-lab-{}.", std::process::id());
    let line = member_of.lines().find(|line| line.contains(&own)).expect("a group of ours");
    let name = line.rsplit('/').next().expect("a name");
    let root = Path::new("/sys/fs/cgroup");
    [root.join(controller).join(name), root.join(name)]
}

#[test]
fn a_quota_holds_for_every_process_of_a_subject() {
    if !is_root("CPU quota") {
        return;
    }
    let Some(file) = installed("squid:null") else { return };
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let start_plan = StartPlan { cpu_quota: Some(0.5), cores: vec![0], ..start_plan(&origin) };
    let running = start(&file, &mut environment, &start_plan, &keeper).expect("it starts");
    if let Some(skipped) = running.skipped().first() {
        eprintln!("skipped CPU quota: {skipped}");
        return;
    }
    let pid = running.pid().expect("it was started");
    let groups = own_groups(&running, "cpu");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "it is pinned");
    assert!(running.facts().contains(&("CPU quota".to_owned(), "0.5 cores".to_owned())));
    let folder = environment.folder().to_path_buf();
    running.stop().expect("it stops");
    environment.remove().expect("removed");
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
}

#[test]
fn a_processor_of_a_steady_speed_is_a_quota_whose_time_is_counted() {
    if !is_root("CPU speed") {
        return;
    }
    let Some(file) = installed("squid:null") else { return };
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    // Neither too much nor too little for any machine and build.
    let speed = Some(SteadySpeed { speed: 0.3, cores_max: 10.0 });
    let start_plan = StartPlan { cpu_speed: speed, cores: vec![0], ..start_plan(&origin) };
    let running = start(&file, &mut environment, &start_plan, &keeper).expect("it starts");
    if let Some(skipped) = running.skipped().first() {
        assert!(skipped.to_string().contains("control groups"), "{skipped}");
        eprintln!("skipped CPU speed: {skipped}");
        return;
    }
    let groups = own_groups(&running, "cpu");
    let quota = |file: &str| groups.iter().find_map(|at| fs::read_to_string(at.join(file)).ok());
    let quota = quota("cpu.cfs_quota_us").or_else(|| quota("cpu.max")).expect("a quota");
    let quota_us = quota.split_ascii_whitespace().next().and_then(|us| us.parse::<f64>().ok());
    let cores = quota_us.expect("a number") / 10_000.0;
    assert!((0.1..=10.0).contains(&cores), "{quota}");
    assert!(running.facts().contains(&("CPU speed".to_owned(), "0.30".to_owned())));
    let measured = || running.used().expect("it is watched");
    let (before, began) = (measured(), Instant::now());
    while began.elapsed() < Duration::from_millis(200) {
        assert_eq!(measured().short_cpu_us, Some(0));
    }
    let after = measured();
    let passed_us = (after.at_us - before.at_us) as f64;
    let allowed_us = |at: Resources| at.allowed_cpu_us.expect("it follows") as f64;
    let ratio = (allowed_us(after) - allowed_us(before)) / passed_us / cores;
    assert!((0.5..2.0).contains(&ratio), "{ratio} of {cores} cores were counted");
    let folder = environment.folder().to_path_buf();
    running.stop().expect("it stops");
    environment.remove().expect("removed");
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    assert_eq!(traces_of(&folder), [] as [String; 0]);
}

#[test]
fn a_memory_limit_holds_for_the_page_cache_too() {
    if !is_root("memory limit") {
        return;
    }
    let Some(file) = installed("squid:null") else { return };
    let (origin, keeper) = (Origin::start(), keeper());
    let mut environment =
        Environment::prepare(&plan(StoreKind::Folder(None)), &keeper).expect("an environment");
    let limit_bytes = 96 << 20;
    let start_plan = StartPlan { memory_limit_bytes: Some(limit_bytes), ..start_plan(&origin) };
    let running = start(&file, &mut environment, &start_plan, &keeper).expect("it starts");
    if let Some(skipped) = running.skipped().first() {
        eprintln!("skipped memory limit: {skipped}");
        return;
    }
    let groups = own_groups(&running, "memory");
    let places = [groups[0].join("memory.limit_in_bytes"), groups[1].join("memory.max")];
    let limit = places.iter().find_map(|place| fs::read_to_string(place).ok());
    assert_eq!(limit.as_deref().map(str::trim), Some("100663296"), "{places:?}");
    let told = format!("{limit_bytes} bytes");
    assert!(running.facts().contains(&("Memory limit".to_owned(), told)));
    running.stop().expect("it stops");
    environment.remove().expect("removed");
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
}
