//! Each kind of wrong answer is given once, and must be reported with its URL and both values.

#![allow(clippy::unwrap_used, reason = "clippy does not know that helpers of tests are tests")]

mod common;

use common::{Deed, SEED, Server, first_fault, plan, run_until, unix_us, workload};
use humboldt_lab_record::{FaultKind, FaultSample};
use humboldt_lab_robots::Robots;
use humboldt_lab_workload::ObjectName;
use std::net::TcpListener;

/// A fault of this kind from a server of 1 KiB objects that does this.
fn provoke(
    kind: FaultKind,
    deed: impl Fn(&common::Seen, common::Reply) -> Deed + Send + Sync + 'static,
) -> (FaultSample, Server) {
    let server = Server::start(workload("fixed-1k"), deed);
    let sample = first_fault(plan("fixed-1k", server.address, 100.0), kind);
    let prefix = format!("http://{}/l/", server.address);
    assert!(sample.url.starts_with(&prefix), "{}", sample.url);
    let path = &sample.url[prefix.len() - 3..];
    assert!(ObjectName::parse(path.as_bytes()).is_some(), "{path}");
    assert!(server.seen.lock().unwrap().iter().any(|seen| seen.ends_with(path)));
    assert!(sample.at_us.abs_diff(unix_us()) < 60_000_000);
    (sample, server)
}

#[test]
fn a_wrong_byte() {
    let (sample, _server) = provoke(FaultKind::WrongByte, |_, mut reply| {
        reply.body[700] ^= 0xff;
        Deed::Say(reply.bytes())
    });
    let path = &sample.url[sample.url.find("/l/").unwrap()..];
    let facts = workload("fixed-1k").facts(SEED, &ObjectName::parse(path.as_bytes()).unwrap());
    let mut right = [0; 8];
    facts.body(facts.version_at(unix_us()).number).fill(700, &mut right);
    let hex =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    assert_eq!((sample.fault.offset, &sample.fault.expected), (Some(700), &hex(&right)));
    right[0] ^= 0xff;
    assert_eq!(sample.fault.got, hex(&right));
}

#[test]
fn a_body_of_another_object() {
    let (sample, _server) = provoke(FaultKind::WrongByte, |request, mut reply| {
        let mut name = request.name.unwrap();
        name.number += 1;
        let other = workload("fixed-1k").facts(SEED, &name);
        other.body(other.version_at(unix_us()).number).fill(0, &mut reply.body);
        Deed::Say(reply.bytes())
    });
    assert!(sample.fault.offset.unwrap() < 8, "{:?}", sample.fault);
}

#[test]
fn a_head_of_another_object() {
    let (sample, _server) = provoke(FaultKind::WrongHead, |_, mut reply| {
        reply.set("ETag", "\"0000000000000001.1\"");
        Deed::Say(reply.bytes())
    });
    assert!(sample.fault.expected.starts_with("ETag \""), "{:?}", sample.fault);
    assert_eq!(sample.fault.got, "\"0000000000000001.1\"");
}

#[test]
fn a_head_with_another_length() {
    let (sample, _server) = provoke(FaultKind::WrongHead, |_, mut reply| {
        reply.set("Content-Length", "1023");
        Deed::SayAndClose(reply.bytes())
    });
    assert_eq!(
        (sample.fault.expected.as_str(), sample.fault.got.as_str()),
        ("Content-Length 1024", "1023")
    );
}

#[test]
fn a_head_with_the_date_of_another_version() {
    let (sample, _server) = provoke(FaultKind::WrongHead, |_, mut reply| {
        reply.set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        Deed::Say(reply.bytes())
    });
    assert!(sample.fault.expected.starts_with("Last-Modified "), "{:?}", sample.fault);
    assert_eq!(sample.fault.got, "Sun, 06 Nov 1994 08:49:37 GMT");
}

#[test]
fn a_head_without_the_request_id() {
    let (sample, _server) = provoke(FaultKind::WrongHead, |_, mut reply| {
        reply.remove("Lab-Request");
        Deed::Say(reply.bytes())
    });
    assert_eq!(
        (sample.fault.expected.as_str(), sample.fault.got.as_str()),
        ("Lab-Request", "no such field")
    );
}

#[test]
fn a_body_that_ends_early() {
    let (sample, _server) = provoke(FaultKind::Truncated, |_, reply| {
        let bytes = reply.bytes();
        Deed::SayAndClose(bytes[..bytes.len() - 24].to_vec())
    });
    assert_eq!((sample.fault.offset, sample.fault.expected.as_str()), (Some(1000), "1024 bytes"));
}

#[test]
fn a_body_until_close_or_in_chunks_that_ends_early() {
    let (sample, _server) = provoke(FaultKind::Truncated, |request, mut reply| {
        reply.remove("Content-Length");
        reply.body.truncate(900);
        if request.number % 2 == 0 {
            return Deed::SayAndClose(reply.bytes());
        }
        reply.set("Transfer-Encoding", "chunked");
        let body = std::mem::take(&mut reply.body);
        let mut bytes = reply.bytes();
        bytes.extend_from_slice(b"384\r\n");
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(b"\r\n0\r\n\r\n");
        Deed::Say(bytes)
    });
    assert_eq!((sample.fault.offset, sample.fault.expected.as_str()), (Some(900), "1024 bytes"));
}

#[test]
fn a_body_that_does_not_end() {
    let (sample, _server) = provoke(FaultKind::TooLong, |_, mut reply| {
        reply.body.extend_from_slice(b"\xde\xadmore");
        Deed::Say(reply.bytes())
    });
    assert_eq!((sample.fault.offset, sample.fault.got.as_str()), (Some(1024), "de ad 6d 6f 72 65"));
}

#[test]
fn an_old_version_after_its_end() {
    let (sample, _server) = provoke(FaultKind::Stale, |_, mut reply| {
        let now = reply.facts.version_at(unix_us());
        reply.become_version(reply.facts.version(now.number - 2));
        Deed::Say(reply.bytes())
    });
    assert!(sample.fault.expected.starts_with("version "), "{:?}", sample.fault);
    assert!(sample.fault.got.contains("which ended"), "{:?}", sample.fault);
}

#[test]
fn hits_on_what_may_not_be_stored() {
    let server = Server::start(workload("polymix-4"), |_, mut reply| {
        reply.set("Lab-Request", "00000000deadbeef");
        Deed::Say(reply.bytes())
    });
    let mut plan = plan("polymix-4", server.address, 400.0);
    for kind in [FaultKind::UncachableHit, FaultKind::ReloadHit] {
        let sample = first_fault(plan.clone(), kind);
        assert_eq!(sample.fault.got, "an answer to request 00000000deadbeef", "{sample:?}");
    }
    plan.excuse_reload_hits = true;
    let robots = Robots::start(plan).unwrap();
    let tally = run_until(&robots, |tally| tally.excused > 3 && tally.hits.answers > 0);
    assert_eq!(tally.faults.get(&FaultKind::ReloadHit), None);
}

#[test]
fn another_status() {
    let (sample, _server) = provoke(FaultKind::WrongStatus, |_, mut reply| {
        reply.status = "500 Oh".into();
        reply.fields = vec![("Content-Length".into(), "19".into())];
        reply.body = b"the disk is on fire".to_vec();
        Deed::Say(reply.bytes())
    });
    assert_eq!(
        (sample.fault.expected.as_str(), sample.fault.got.as_str()),
        ("200", "500 the disk is on fire")
    );
}

#[test]
fn no_http() {
    let (sample, _server) =
        provoke(FaultKind::Malformed, |_, _| Deed::Say(b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec()));
    assert_eq!(sample.fault.got, "SSH-2.0-OpenSSH_9.9");
}

#[test]
fn nobody_listens() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sample = first_fault(plan("fixed-1k", address, 100.0), FaultKind::Refused);
    assert!(sample.fault.got.contains("refused"), "{:?}", sample.fault);
}

#[test]
fn the_connection_ends_before_the_head() {
    let (sample, _server) =
        provoke(FaultKind::Disconnected, |_, _| Deed::SayAndClose(b"HTTP/1.1 200 OK\r\n".to_vec()));
    assert_eq!(sample.fault.got, "end of the connection after 17 bytes of the head");
}

#[test]
fn silence() {
    let server = Server::start(workload("fixed-1k"), |_, _| Deed::Silence);
    let mut plan = plan("fixed-1k", server.address, 100.0);
    plan.timeout_s = 0.2;
    let sample = first_fault(plan, FaultKind::TimedOut);
    assert_eq!(sample.fault.expected, "an answer within 0.2 s");
}
