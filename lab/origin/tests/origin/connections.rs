//! How connections are used and end.

use crate::client::Client;
use crate::world::{BIG, World, of_kind, page};
use humboldt_lab_workload::ObjectName;
use std::io::Read;
use std::net::TcpStream;

#[test]
fn a_connection_is_used_as_often_as_the_workload_says() {
    let running = World { uses: "constant(3)", ..World::default() }.start();
    let mut client = Client::connect(running.address());
    let path = running.path(page(1));
    let kept: Vec<bool> = (0..3).map(|_| client.get(&path).keep_alive).collect();
    assert_eq!(kept, [true, true, false]);
    assert!(client.is_closed());
    drop(client);
    let tally = running.sample_until(|tally| tally.connections == 0);
    assert_eq!((tally.requests, tally.connects), (3, 1));
}

#[test]
fn requests_after_the_last_answer_do_not_harm_it() {
    let running = World { uses: "constant(1)", ..World::default() }.start();
    let mut client = Client::connect(running.address());
    // Small enough for the kernel's buffers, too large to have reached the client before it reads.
    let name = ObjectName { size: Some(400_000), ..page(1) };
    let ask = format!("GET {} HTTP/1.1\r\n\r\n", running.path(name));
    client.send(ask.as_bytes());
    running.sample_until(|tally| tally.body_bytes == 400_000);
    client.send(ask.repeat(50).as_bytes());
    assert_eq!(client.answer("GET").body.len(), 400_000);
    assert!(client.is_closed());
    drop(client);
    running.sample_until(|tally| tally.connections == 0);
}

#[test]
fn an_idle_connection_is_closed_once_it_was_used() {
    let running = World { idle: "40 s", time_scale: 0.001, ..World::default() }.start();
    let mut silent = Client::connect(running.address());
    let mut client = Client::connect(running.address());
    assert!(client.get(&running.path(page(1))).keep_alive);
    client.send(b"GET / HT");
    assert!(client.is_closed());
    // Its first request may come late.
    assert_eq!(silent.get(&running.path(page(1))).status, 200);
    assert!(silent.is_closed());
    running.sample_until(|tally| tally.connections == 0 && tally.connects == 2);
}

#[test]
fn clients_that_go_away_leave_nothing_behind() {
    let running = World { threads: 2, ..World::default() }.start();
    let path = running.path(of_kind(BIG, 1));
    for index in 0..40 {
        let mut client = Client::connect(running.address());
        match index % 4 {
            0 => {}
            1 => client.send(b"GET /l/0"),
            2 => client.send(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()),
            _ => {
                client.send(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
                client.stream.read_exact(&mut [0; 1000]).unwrap();
            }
        }
    }
    let tally = running.sample_until(|tally| tally.connections == 0 && tally.connects == 40);
    assert_eq!((tally.requests, tally.threads), (20, 2));
    assert!(tally.cpu_us > 0 && tally.period_us > 0 && tally.lag.count() <= 20);
}

#[test]
fn several_addresses_are_several_servers() {
    let running = World { listen: 3, threads: 2, ..World::default() }.start();
    let addresses = running.origin.addresses();
    assert!(addresses.len() == 3 && addresses.iter().all(|address| address.port() != 0));
    for address in addresses {
        assert_eq!(Client::connect(*address).get(&running.path(page(1))).status, 200);
    }
    let addresses = addresses.to_vec();
    assert_eq!(running.origin.stop().requests, 3);
    assert!(addresses.iter().all(|address| TcpStream::connect(address).is_err()));
}

#[test]
fn dropping_the_origin_ends_it() {
    let running = World::default().start();
    let mut client = Client::connect(running.address());
    assert_eq!(client.get("/health").status, 200);
    drop(running.origin);
    assert!(client.is_closed());
}
