//! The users: their connections, and the requests that wait for one.
//!
//! A user is a few numbers in a table, so 100,000 idle ones cost nothing; their connections and
//! requests are chained through slots.

use crate::chain::{Chain, Links, NONE};

/// Users of one world. Beyond it they share more than their connections would allow in life, which
/// no machine's number of ports lets happen.
pub(crate) const ROBOTS_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
struct Robot {
    /// Its connections without a request; the last is the latest used.
    idle: Chain,
    /// All its connections.
    open: u32,
    /// Its requests without a connection, in order.
    waiting: Chain,
    /// It waits for any user to close a connection, as there are too many in all.
    starving: bool,
}

/// The users of one world.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    robots: Vec<Robot>,
    /// Users that new visits may belong to; those beyond only finish their requests.
    active: u32,
    idle_links: Links,
    waiting_links: Links,
    starving: Chain,
    starving_links: Links,
    /// The idle connections of all, the longest idle first.
    all_idle: Chain,
    all_idle_links: Links,
    /// Users that got room or work, and are to be served next.
    to_serve: Vec<u32>,
}

impl Crowd {
    /// Changes the number of users. Idle connections of the others are given back for closing.
    pub(crate) fn resize(&mut self, wanted: f64, surplus: &mut Vec<u32>) {
        // The cast saturates, and not-a-number becomes 0.
        let count = (wanted.round() as usize).clamp(1, ROBOTS_MAX);
        if self.robots.len() < count {
            self.robots.resize_with(count, Robot::default);
        }
        self.active = count as u32;
        for robot in &self.robots[count..] {
            surplus.extend(robot.idle.backwards(&self.idle_links));
        }
    }

    /// The user that luck chooses.
    pub(crate) fn pick(&self, luck: u32) -> u32 {
        ((u64::from(luck) * u64::from(self.active)) >> 32) as u32
    }

    pub(crate) fn is_surplus(&self, robot: u32) -> bool {
        robot >= self.active
    }

    pub(crate) fn open(&self, robot: u32) -> u32 {
        self.robots[robot as usize].open
    }

    pub(crate) fn add_connection(&mut self, robot: u32) {
        self.robots[robot as usize].open += 1;
    }

    /// A connection that is not idle is no more. A request that waits for room has it now.
    pub(crate) fn remove_connection(&mut self, robot: u32) {
        self.robots[robot as usize].open -= 1;
        self.serve_later(robot);
        self.feed_one();
    }

    /// The next starving user with a waiting request is to be served.
    fn feed_one(&mut self) {
        while self.starving.first != NONE {
            let first = self.starving.first;
            self.starving.remove(&mut self.starving_links, first);
            let robot = &mut self.robots[first as usize];
            robot.starving = false;
            if robot.waiting.first != NONE {
                return self.to_serve.push(first);
            }
        }
    }

    /// A connection has nothing to do: its user's next request gets it, or another user gets its
    /// place.
    pub(crate) fn put_idle(&mut self, robot: u32, connection: u32) {
        self.robots[robot as usize].idle.push_back(&mut self.idle_links, connection);
        self.all_idle.push_back(&mut self.all_idle_links, connection);
        if self.robots[robot as usize].waiting.first == NONE {
            self.feed_one();
        } else {
            self.to_serve.push(robot);
        }
    }

    pub(crate) fn remove_idle(&mut self, robot: u32, connection: u32) {
        self.robots[robot as usize].idle.remove(&mut self.idle_links, connection);
        self.all_idle.remove(&mut self.all_idle_links, connection);
    }

    /// Its idle connections, the latest used first.
    pub(crate) fn idle(&self, robot: u32) -> impl Iterator<Item = u32> {
        self.robots[robot as usize].idle.backwards(&self.idle_links)
    }

    /// The connection that has been idle for longest, of all users.
    pub(crate) fn longest_idle(&self) -> Option<u32> {
        (self.all_idle.first != NONE).then_some(self.all_idle.first)
    }

    pub(crate) fn wait(&mut self, robot: u32, ask: u32) {
        self.robots[robot as usize].waiting.push_back(&mut self.waiting_links, ask);
    }

    /// As it was before, without being served at once.
    pub(crate) fn wait_again(&mut self, robot: u32, ask: u32) {
        self.robots[robot as usize].waiting.push_front(&mut self.waiting_links, ask);
    }

    /// It was sent in vain, and is next.
    pub(crate) fn wait_in_front(&mut self, robot: u32, ask: u32) {
        self.wait_again(robot, ask);
        self.serve_later(robot);
    }

    pub(crate) fn stop_waiting(&mut self, robot: u32, ask: u32) {
        self.robots[robot as usize].waiting.remove(&mut self.waiting_links, ask);
    }

    pub(crate) fn first_waiting(&self, robot: u32) -> Option<u32> {
        let first = self.robots[robot as usize].waiting.first;
        (first != NONE).then_some(first)
    }

    /// It goes on when any user closes a connection.
    pub(crate) fn starve(&mut self, robot: u32) {
        let place = &mut self.robots[robot as usize];
        if !place.starving {
            place.starving = true;
            self.starving.push_back(&mut self.starving_links, robot);
        }
    }

    fn serve_later(&mut self, robot: u32) {
        if self.robots[robot as usize].waiting.first != NONE {
            self.to_serve.push(robot);
        }
    }

    pub(crate) fn next_to_serve(&mut self) -> Option<u32> {
        self.to_serve.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_uses_the_latest_connection_again() {
        let mut crowd = Crowd::default();
        crowd.resize(2.0, &mut Vec::new());
        for connection in [5, 6, 7] {
            crowd.add_connection(1);
            crowd.put_idle(1, connection);
        }
        assert_eq!(crowd.idle(1).collect::<Vec<_>>(), [7, 6, 5]);
        assert_eq!(crowd.longest_idle(), Some(5));
        crowd.remove_idle(1, 5);
        assert_eq!(crowd.longest_idle(), Some(6));
        let mut surplus = Vec::new();
        crowd.resize(1.0, &mut surplus);
        assert_eq!((surplus, crowd.is_surplus(1), crowd.is_surplus(0)), (vec![7, 6], true, false));
    }

    #[test]
    fn luck_reaches_every_user_and_no_other() {
        let mut crowd = Crowd::default();
        crowd.resize(3.0, &mut Vec::new());
        assert_eq!([0, u32::MAX / 2, u32::MAX].map(|luck| crowd.pick(luck)), [0, 1, 2]);
        crowd.resize(f64::NAN, &mut Vec::new());
        assert_eq!(crowd.pick(u32::MAX), 0);
    }

    #[test]
    fn whoever_starved_first_is_served_when_a_connection_closes() {
        let mut crowd = Crowd::default();
        crowd.resize(3.0, &mut Vec::new());
        crowd.add_connection(0);
        for robot in [1, 2] {
            crowd.wait(robot, robot + 10);
            crowd.starve(robot);
            crowd.starve(robot);
        }
        crowd.remove_connection(0);
        assert_eq!((crowd.next_to_serve(), crowd.next_to_serve()), (Some(1), None));
        // An idle connection is room as well, and a user without waiting requests is passed over.
        crowd.starve(1);
        crowd.stop_waiting(2, 12);
        crowd.add_connection(0);
        crowd.put_idle(0, 7);
        assert_eq!((crowd.next_to_serve(), crowd.next_to_serve()), (Some(1), None));
    }
}
