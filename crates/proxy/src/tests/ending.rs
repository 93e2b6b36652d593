//! Cores that end, by an order or by a fault, before clients of other cores have their answers.

use super::*;

#[test]
fn a_fetch_that_goes_with_its_core_is_a_cut_for_those_who_follow_it_from_another() {
    play("collapsed_forwarding on", async |world| {
        let other_core = LocalSet::new();
        let begun = other_core.run_until(async {
            let first = world.get("/a");
            let server = world.server().await;
            server.send_head(head(200, "Cache-Control: max-age=60\r\nContent-Length: 10000\r\n"));
            server.send_body(&pattern(1000));
            first.client.body(1000).await;
            (first, server)
        });
        let (first, server) = begun.await;
        let second = world.get("/a");
        second.client.body(1000).await;
        assert_eq!(world.cuts(), []);
        drop(other_core);
        let answer = second.over().await;
        assert_eq!((short(&answer), answer.end), ((200, &*pattern(1000)), Some(End::Cut)));
        assert_eq!(world.cuts(), [("fetch_ended", 1)]);
        assert!(first.task.await.is_err_and(|error| error.is_cancelled()));
        server.given_up().await;
        // The next one finds nothing of it.
        let third = world.get("/a");
        say(&world.server().await, b"hello");
        assert_eq!(short(&third.whole().await), (200, &b"hello"[..]));
        let lines = [
            "NONE_NONE_ABORTED/000 GET HIER_NONE/-",
            "TCP_CF_MISS_ABORTED/200 GET HIER_NONE/-",
            "TCP_MISS/200 GET HIER_DIRECT/192.0.2.1",
        ];
        assert_eq!(world.lines(), lines);
    });
}
