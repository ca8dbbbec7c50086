//! The admission without sockets: two shards that share the places of a broker.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Return the descriptors of a shard: room for so many clients, and for three of each other kind.
fn room(clients: usize) -> Room {
    Room {
        clients,
        told: 3,
        ending: 3,
        monitor: 3,
    }
}

fn address(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

/// A shard's admission and the stages of its connections, without the shard.
struct Shard {
    admission: Admission,
    connections: BTreeMap<u64, (Stage, IpAddr)>,
}

/// A broker's admission with what shards do for it.
struct Broker {
    places: Arc<Places>,
    shards: Vec<Shard>,
    /// Connections that have lost their place to another shard, which has not told them.
    mail: Vec<Evicted>,
    next: u64,
    now: Instant,
}

impl Broker {
    fn new(places: usize, rooms: &[usize], per_address: usize) -> Self {
        let now = Instant::now();
        let places = Arc::new(Places::new(places, rooms.len(), per_address, now));
        let shard = |(n, clients): (usize, &usize)| Shard {
            admission: Admission::new(Arc::clone(&places), n, room(*clients), TIMEOUT, 0.0, now),
            connections: BTreeMap::new(),
        };
        Self {
            shards: rooms.iter().enumerate().map(shard).collect(),
            places,
            mail: Vec::new(),
            next: 0,
            now,
        }
    }

    /// Have a connection come; `None` when it is closed at once.
    fn connect(&mut self, shard: usize, address: IpAddr) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        let one = &mut self.shards[shard];
        let stage = match one.admission.admit(address, true) {
            Decision::Admitted(evicted) => {
                one.connections.insert(number, (Stage::Introduced, address));
                match evicted {
                    Some(evicted) if evicted.shard == shard => self.tell(evicted),
                    Some(evicted) => self.mail.push(evicted),
                    None => {}
                }
                let id = ConnId::from_bits(number);
                self.shards[shard].admission.begin(id, self.now)
            }
            Decision::Refused(refusal) => Stage::Refused(refusal),
            Decision::Dismissed => return None,
        };
        let one = &mut self.shards[shard];
        one.connections.insert(number, (stage, address));
        Some(number)
    }

    /// Tell a connection that it has lost its place, if it is still there.
    fn tell(&mut self, evicted: Evicted) {
        let one = &mut self.shards[evicted.shard];
        if let Some((stage, _)) = one.connections.get_mut(&evicted.id.to_bits())
            && matches!(stage, Stage::HalfOpen(_))
        {
            *stage = one.admission.lose(true);
        }
    }

    fn deliver_mail(&mut self) {
        for evicted in std::mem::take(&mut self.mail) {
            self.tell(evicted);
        }
    }

    fn introduce(&mut self, shard: usize, number: u64) {
        let one = &mut self.shards[shard];
        let Some((stage, _)) = one.connections.get_mut(&number) else {
            return;
        };
        if let Stage::HalfOpen(ticket) = *stage {
            *stage = if one.admission.introduce(ticket, ConnId::from_bits(number)) {
                Stage::Introduced
            } else {
                one.admission.lose(true)
            };
        }
    }

    fn close(&mut self, shard: usize, number: u64) {
        let one = &mut self.shards[shard];
        if let Some((stage, address)) = one.connections.remove(&number) {
            one.admission
                .close(stage, ConnId::from_bits(number), address);
        }
    }

    fn expire(&mut self, shard: usize) {
        while let Some(id) = self.shards[shard].admission.expire(self.now) {
            self.tell(Evicted { shard, id });
        }
    }

    fn stage(&self, shard: usize, number: u64) -> Stage {
        self.shards[shard].connections[&number].0
    }

    fn check(&self) {
        let mut placed = 0;
        for shard in &self.shards {
            let stages = shard.connections.iter();
            let stages = stages.map(|(number, (stage, _))| (ConnId::from_bits(*number), *stage));
            placed += shard.admission.check(stages).unwrap();
        }
        assert_eq!(self.places.taken(), placed);
        assert!(placed <= self.places.most());
    }

    fn end(mut self) {
        for shard in 0..self.shards.len() {
            let numbers: Vec<_> = self.shards[shard].connections.keys().copied().collect();
            numbers
                .into_iter()
                .for_each(|number| self.close(shard, number));
        }
        self.check();
        assert_eq!((self.places.taken(), self.places.addresses()), (0, 0));
    }
}

#[test]
fn a_newcomer_gets_the_place_of_the_oldest_that_has_said_nothing() {
    let mut broker = Broker::new(3, &[10], 0);
    let first: Vec<_> = (0..3)
        .map(|n| broker.connect(0, address(n)).unwrap())
        .collect();
    broker.introduce(0, first[0]);
    let fourth = broker.connect(0, address(4)).unwrap();
    assert_eq!(broker.stage(0, first[0]), Stage::Introduced);
    assert_eq!(broker.stage(0, first[1]), Stage::Evicted);
    assert!(matches!(broker.stage(0, first[2]), Stage::HalfOpen(_)));
    broker.introduce(0, first[2]);
    broker.introduce(0, fourth);
    broker.check();
    let refused = broker.connect(0, address(5)).unwrap();
    assert_eq!(broker.stage(0, refused), Stage::Refused(Refusal::NoPlace));
    // The place is free with the descriptor, and not before.
    broker.close(0, first[0]);
    let next = broker.connect(0, address(5)).unwrap();
    assert!(matches!(broker.stage(0, next), Stage::HalfOpen(_)));
    broker.check();
    broker.end();
}

#[test]
fn the_place_of_a_connection_of_another_shard_will_do() {
    let mut broker = Broker::new(2, &[10, 10], 0);
    let there: Vec<_> = (0..2)
        .map(|n| broker.connect(1, address(n)).unwrap())
        .collect();
    let newcomer = broker.connect(0, address(9)).unwrap();
    assert!(matches!(broker.stage(0, newcomer), Stage::HalfOpen(_)));
    broker.check();
    // It speaks before the mail has come, and is too late all the same.
    broker.introduce(1, there[0]);
    assert_eq!(broker.stage(1, there[0]), Stage::Evicted);
    broker.deliver_mail();
    broker.introduce(1, there[1]);
    assert_eq!(broker.stage(1, there[1]), Stage::Introduced);
    broker.check();
    broker.end();
}

#[test]
fn the_oldest_of_all_shards_gives_way() {
    let mut broker = Broker::new(3, &[10, 10], 0);
    let mut connect = |shard, n| {
        broker.now += TIMEOUT / 100;
        broker.connect(shard, address(n)).unwrap()
    };
    let oldest = connect(1, 0);
    let second = connect(0, 1);
    let third = connect(1, 2);
    // One of its own shard has come later, and stays.
    let newcomer = connect(0, 3);
    broker.deliver_mail();
    assert_eq!(broker.stage(1, oldest), Stage::Evicted);
    for (shard, number) in [(0, second), (1, third), (0, newcomer)] {
        assert!(matches!(broker.stage(shard, number), Stage::HalfOpen(_)));
    }
    broker.check();
    broker.end();
}

#[test]
fn a_shard_without_room_takes_no_place_of_another_one() {
    let mut broker = Broker::new(10, &[2, 10], 0);
    let elsewhere = broker.connect(1, address(1)).unwrap();
    let here: Vec<_> = (0..2)
        .map(|n| broker.connect(0, address(n)).unwrap())
        .collect();
    broker.connect(0, address(3)).unwrap();
    assert_eq!(broker.stage(0, here[0]), Stage::Evicted);
    assert!(broker.mail.is_empty());
    assert!(matches!(broker.stage(1, elsewhere), Stage::HalfOpen(_)));
    broker.check();
    broker.end();
}

#[test]
fn only_so_many_are_told_and_the_rest_closed_without_a_word() {
    let mut broker = Broker::new(1, &[10], 0);
    let first = broker.connect(0, address(0)).unwrap();
    for n in 1..=3 {
        broker.connect(0, address(n)).unwrap();
    }
    assert_eq!(broker.stage(0, first), Stage::Evicted);
    assert!(!broker.shards[0].admission.is_closing_enough());
    for n in 0..3 {
        // All who may be told are being told, so that those that give way end at once.
        broker.connect(0, address(n)).unwrap();
        assert_eq!(
            broker.shards[0].admission.is_closing_enough(),
            n == 2,
            "as many as there are descriptors for"
        );
    }
    let last = broker.next - 1;
    broker.introduce(0, last);
    assert_eq!(
        broker.connect(0, address(9)),
        None,
        "refused without a word"
    );
    broker.close(0, first);
    assert!(broker.connect(0, address(9)).is_some(), "told again");
    broker.check();
    broker.end();
}

#[test]
fn an_address_has_so_many_places_and_takes_none_of_the_others() {
    let mut broker = Broker::new(4, &[10, 10], 2);
    let one = broker.connect(0, address(1)).unwrap();
    broker.connect(1, address(1)).unwrap();
    let refused = broker.connect(1, address(1)).unwrap();
    assert_eq!(broker.stage(1, refused), Stage::Refused(Refusal::Address));
    let other = broker.connect(1, address(2)).unwrap();
    assert!(matches!(broker.stage(1, other), Stage::HalfOpen(_)));
    broker.close(0, one);
    let next = broker.connect(1, address(1)).unwrap();
    assert!(matches!(broker.stage(1, next), Stage::HalfOpen(_)));
    broker.check();
    broker.end();
}

#[test]
fn connections_expire_in_the_order_of_their_coming_and_the_others_stay() {
    let mut broker = Broker::new(10, &[10], 0);
    let first = broker.connect(0, address(1)).unwrap();
    let admission = &mut broker.shards[0].admission;
    assert_eq!(admission.begin_timer(broker.now), Some(TIMEOUT));
    assert_eq!(admission.begin_timer(broker.now), None, "one timer");
    broker.now += TIMEOUT / 2;
    let second = broker.connect(0, address(2)).unwrap();
    let third = broker.connect(0, address(2)).unwrap();
    broker.introduce(0, second);
    broker.now += TIMEOUT / 2;
    broker.expire(0);
    assert_eq!(broker.stage(0, first), Stage::Evicted);
    assert_eq!(broker.stage(0, second), Stage::Introduced);
    assert!(matches!(broker.stage(0, third), Stage::HalfOpen(_)));
    assert_eq!(broker.places.taken(), 2, "given back at once");
    let admission = &mut broker.shards[0].admission;
    admission.end_timer();
    assert_eq!(admission.begin_timer(broker.now), Some(TIMEOUT / 2));
    admission.end_timer();
    broker.now += TIMEOUT;
    broker.expire(0);
    let admission = &mut broker.shards[0].admission;
    assert_eq!(
        admission.begin_timer(broker.now),
        None,
        "no connection waits"
    );
    broker.check();
    broker.end();
}

#[test]
fn without_memory_no_newcomer_is_admitted() {
    let mut broker = Broker::new(10, &[10], 1);
    let refused = broker.shards[0].admission.admit(address(1), false);
    assert_eq!(refused, Decision::Refused(Refusal::NoMemory));
    let number = broker.connect(0, address(1)).unwrap();
    assert!(matches!(broker.stage(0, number), Stage::HalfOpen(_)));
}

#[derive(Debug, Clone)]
enum Act {
    Connect(usize, u8),
    Introduce(usize, usize),
    Close(usize, usize),
    Mail,
    Pass,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..2_usize, 0..3_u8).prop_map(|(shard, address)| Act::Connect(shard, address)),
        2 => (0..2_usize, 0..8_usize).prop_map(|(shard, n)| Act::Introduce(shard, n)),
        2 => (0..2_usize, 0..8_usize).prop_map(|(shard, n)| Act::Close(shard, n)),
        1 => Just(Act::Mail),
        1 => Just(Act::Pass),
    ]
}

proptest! {
    #[test]
    fn places_are_conserved_whatever_happens(
        acts in prop::collection::vec(act(), 0..200),
        places in 1..6_usize,
        per_address in 0..4_usize,
    ) {
        let mut broker = Broker::new(places, &[4, 3], per_address);
        let nth = |broker: &Broker, shard: usize, n: usize| {
            broker.shards[shard].connections.keys().nth(n).copied()
        };
        for act in acts {
            match act {
                Act::Connect(shard, from) => drop(broker.connect(shard, address(from))),
                Act::Introduce(shard, n) => {
                    if let Some(number) = nth(&broker, shard, n) {
                        broker.introduce(shard, number);
                    }
                }
                Act::Close(shard, n) => {
                    if let Some(number) = nth(&broker, shard, n) {
                        broker.close(shard, number);
                    }
                }
                Act::Mail => broker.deliver_mail(),
                Act::Pass => {
                    broker.now += TIMEOUT / 3;
                    (0..2).for_each(|shard| broker.expire(shard));
                }
            }
            broker.check();
        }
        broker.end();
    }
}
