#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

const MEASURED_FROM: u64 = 1_000;

/// Six users of two subjects: three receivers for each message.
fn window() -> Window {
    let mut window = Window::new(Audience::new(0, 6, 2), 0, true);
    window.measure_from(MEASURED_FROM);
    window
}

fn part(number: u64, count: u32, first: u64, last: u64) -> MessageReceipts {
    MessageReceipts {
        number,
        planned: MEASURED_FROM,
        count,
        first,
        last,
    }
}

#[test]
fn a_message_is_in_flight_until_everybody_has_it() {
    let mut window = window();
    assert_eq!(window.begin(MEASURED_FROM - 1), 0);
    assert_eq!(window.begin(MEASURED_FROM), 1);
    assert_eq!((window.in_flight(), window.next()), (2, 2));
    window.receive(&part(1, 2, 50, 60));
    window.receive(&part(0, 3, 10, 20));
    window.retire(0);
    assert_eq!((window.in_flight(), window.is_drained()), (1, false));
    window.receive(&part(1, 1, 40, 45));
    window.retire(0);
    assert_eq!((window.in_flight(), window.is_drained()), (0, true));
    assert_eq!((window.spread.count, window.spread.max), (1, 20));
    assert_eq!(window.rows, Some(vec![Row(1, 3, 40, 60)]));
    assert_eq!((window.warmup.expected, window.measured.expected), (3, 3));
    assert_eq!(window.incomplete, 0);
}

#[test]
fn a_gap_is_not_waited_for_but_not_forgotten_either() {
    let mut window = window();
    for _ in 0..6 {
        window.begin(MEASURED_FROM);
    }
    // One user has received neither 0 nor 2, but 4.
    window.record_missing(0, 4);
    for number in [0, 2] {
        window.receive(&part(number, 2, 1, 2));
    }
    for number in [1, 3, 4, 5] {
        window.receive(&part(number, 3, 1, 2));
    }
    assert!(window.is_drained());
    window.retire(0);
    assert_eq!((window.in_flight(), window.incomplete), (0, 2));
    assert_eq!(window.spread.count, 4);
}

#[test]
fn who_has_gone_is_not_waited_for() {
    let mut window = window();
    window.begin(MEASURED_FROM);
    window.begin(MEASURED_FROM);
    window.receive(&part(0, 2, 1, 2));
    assert_eq!(window.in_flight(), 2);
    window.lose(0);
    assert_eq!(window.in_flight(), 1);
    window.begin(MEASURED_FROM);
    window.receive(&part(1, 3, 1, 2));
    window.receive(&part(2, 2, 1, 2));
    assert!(window.is_drained());
    window.retire(0);
    assert_eq!((window.in_flight(), window.incomplete), (0, 2));
    assert_eq!(window.measured.expected, 9);
}

#[test]
fn what_nobody_publishes_or_receives_is_given_up() {
    let mut window = window();
    window.begin(MEASURED_FROM);
    window.begin(MEASURED_FROM + 10);
    window.count_sent(MEASURED_FROM);
    window.count_sent(MEASURED_FROM + 10);
    window.refuse(1, MEASURED_FROM + 10);
    assert_eq!((window.measured.sent, window.measured.errors), (2, 1));
    assert_eq!(window.in_flight(), 1);
    assert_eq!(window.oldest(), Some(MEASURED_FROM));
    window.retire(MEASURED_FROM);
    assert_eq!(window.in_flight(), 1);
    window.retire(MEASURED_FROM + 1);
    assert_eq!((window.in_flight(), window.incomplete), (0, 2));
    assert!(!window.is_drained());
    // It comes after all.
    window.receive(&part(0, 3, 1, 2));
    assert_eq!((window.spread.count, window.oldest()), (0, None));
}

#[test]
fn receipts_may_come_before_the_plan_does() {
    let mut window = window();
    window.receive(&part(1, 3, 1, 2));
    window.retire(u64::MAX);
    assert_eq!(window.in_flight(), 1);
    window.begin(MEASURED_FROM - 5);
    window.begin(MEASURED_FROM);
    window.receive(&part(0, 3, 1, 2));
    window.retire(0);
    assert_eq!((window.spread.count, window.incomplete), (1, 0));
    assert_eq!((window.warmup.expected, window.measured.expected), (3, 3));
}

#[test]
fn a_number_from_nowhere_takes_no_memory() {
    let mut window = window();
    window.receive(&part(u64::MAX, 1, 1, 2));
    window.receive(&part(MOST_AHEAD, 1, 1, 2));
    assert_eq!(window.entries.len(), 0);
}

#[test]
fn the_publisher_is_called_for_room_and_at_the_end() {
    let mut window = Window::new(Audience::new(0, 1, 1), 2, false);
    window.begin(0);
    window.begin(0);
    assert!(!window.waits_for_publisher());
    window.receive(&part(0, 1, 1, 1));
    assert!(window.waits_for_publisher());
    let mut window = Window::new(Audience::new(0, 1, 1), 0, false);
    window.begin(0);
    window.receive(&part(0, 1, 1, 1));
    assert!(!window.waits_for_publisher());
    window.has_ended = true;
    assert!(window.waits_for_publisher());
}

/// What may happen to one user.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Receives,
    Misses,
    Leaves,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![20 => Just(Fate::Receives), 2 => Just(Fate::Misses), 1 => Just(Fate::Leaves)]
}

proptest! {
    /// Users receive, miss and leave as they like; the window always agrees with a plain count.
    #[test]
    fn agrees_with_a_plain_count(
        users in 1u32..8,
        subjects in 1u32..4,
        messages in 1u64..40,
        fates in prop::collection::vec(fate(), 320),
    ) {
        let audience = Audience::new(3, users, subjects);
        let mut window = Window::new(audience, 0, false);
        window.measure_from(0);
        let mut next: Vec<Option<u64>> = (3..3 + users).map(|n| Some(u64::from(n % subjects))).collect();
        let mut fates = fates.into_iter();
        let (mut received, mut complete) = (0, 0);
        for number in 0..messages {
            prop_assert_eq!(window.begin(number), number);
            let mut receipts = 0;
            for (user, next) in next.iter_mut().enumerate() {
                let is_for = (user as u32 + 3) % subjects == audience.subject_of(number);
                let Some(expected) = next.filter(|_| is_for) else { continue };
                match fates.next().unwrap() {
                    Fate::Misses => {}
                    Fate::Leaves => {
                        window.lose(expected);
                        *next = None;
                    }
                    Fate::Receives => {
                        window.record_missing(expected, number);
                        window.receive(&MessageReceipts { number, planned: number, count: 1, first: 7, last: 7 });
                        receipts += 1;
                        *next = Some(number + audience.step());
                    }
                }
            }
            received += receipts;
            let subscribers = audience.subscribers(audience.subject_of(number));
            complete += u64::from(receipts == u64::from(subscribers) && subscribers > 0);
        }
        let expected = window.measured.expected;
        let reachable: u64 = (0..messages)
            .map(|number| u64::from(audience.subscribers(audience.subject_of(number))))
            .sum();
        prop_assert_eq!(expected, reachable);
        prop_assert_eq!(window.received, received);
        // Each remaining user reports its missing messages at the end.
        for next in next.into_iter().flatten() {
            window.record_missing(next, messages);
        }
        prop_assert_eq!(window.received + window.missing, expected);
        prop_assert_eq!(window.in_flight(), 0);
        window.retire(0);
        prop_assert!(window.entries.is_empty());
        prop_assert_eq!(window.spread.count, complete);
    }
}
