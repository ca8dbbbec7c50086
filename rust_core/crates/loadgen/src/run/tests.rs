#![allow(clippy::unwrap_used)]
//! The accounting, driven by hand: no server, no clock.

use proptest::prelude::*;

use super::*;
use crate::recorder::histogram;

const MS: u64 = 1_000_000;

fn config(json: &str) -> RequestorConfig {
    let base = r#""transport":"tcp","address":"127.0.0.1:1","users":4,"warmup_s":0.1,
        "duration_s":0.2,"timeout_s":0.05,"reply_bytes":40"#;
    let rate = if json.contains("rate") {
        ""
    } else {
        r#","rate":100"#
    };
    RequestorConfig::from_json(&format!("{{{base}{rate}{json}}}")).unwrap()
}

fn run() -> Run {
    Run::new(&config(""), 0, 4)
}

fn reply(id: u64) -> Vec<u8> {
    let mut payload = vec![0; 40];
    payload::fill(&mut payload, PayloadKind::Reply, id);
    payload
}

fn message(payload: &[u8]) -> Message<'_> {
    Message {
        subject: b"/c/0",
        reply: None,
        headers: None,
        payload,
    }
}

#[test]
fn warm_up_and_measured_requests_are_counted_apart() {
    let mut run = run();
    let mut now = 0;
    while now < 300 * MS {
        while let Some(due) = run.poll_due(now) {
            let id = run.begin(2, 1, due, now);
            run.handle_reply(2, &message(&reply(id)), now + 3 * MS);
        }
        now += MS;
    }
    assert!(run.is_over(now) && !run.is_sending(now));
    let (totals, last) = run.finish(now);
    let (warmup, measured) = (totals.warmup, totals.measured);
    assert_eq!((warmup.sent, warmup.received), (10, 10));
    assert_eq!((measured.sent, measured.received), (20, 20));
    assert_eq!((totals.duration, totals.latency.count), (200 * MS, 20));
    assert_eq!(totals.service.sum, 20 * 3 * u128::from(MS));
    assert_eq!(last.unwrap().sent, 20);
}

#[test]
fn a_late_engine_sends_late_and_says_so() {
    let mut run = run();
    let mut sent = Vec::new();
    while let Some(due) = run.poll_due(400 * MS) {
        sent.push((due, run.begin(0, 0, due, 400 * MS)));
    }
    assert_eq!(sent.len(), 30);
    for (_, id) in &sent {
        run.handle_reply(0, &message(&reply(*id)), 401 * MS);
    }
    let (totals, _) = run.finish(401 * MS);
    assert_eq!((totals.max_send_lag, totals.duration), (300 * MS, 300 * MS));
    assert_eq!((totals.latency.max, totals.service.max), (301 * MS, MS));
    assert_eq!(totals.latency.min, 111 * MS);
}

#[test]
fn every_outcome() {
    let mut run = run();
    let mut begin = |user, provider| run.begin(user, provider, 150 * MS, 150 * MS);
    let [answered, corrupt, short, lost, foreign, refused] =
        [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0), (1, 5)]
            .map(|(user, provider)| begin(user, provider));
    let now = 160 * MS;
    run.handle_reply(0, &message(&reply(answered)), now);
    run.handle_reply(0, &message(&reply(answered)), now);
    let mut broken = reply(corrupt);
    broken[39] ^= 1;
    run.handle_reply(1, &message(&broken), now);
    run.handle_reply(2, &message(&reply(short)[..39]), now);
    run.handle_reply(1, &message(&reply(foreign)), now);
    run.handle_reply(0, &message(b"1234567"), now);
    run.handle_reply(0, &message(&reply(answered ^ 1 << 50)), now);
    let headers = Some(&b"NATS/1.0 503\r\nNats-Subject: /s/5\r\n\r\n"[..]);
    let status = Message {
        headers,
        ..message(b"")
    };
    run.handle_reply(1, &status, now);
    run.handle_reply(1, &status, now);
    run.refuse(150 * MS);
    run.expire(200 * MS, drop);
    run.handle_reply(3, &message(&reply(lost)), 201 * MS);
    run.handle_reply(1, &message(&reply(refused)), 201 * MS);
    let (totals, _) = run.finish(201 * MS);
    let expected = Counts {
        sent: 7,
        received: 1,
        timed_out: 2,
        errors: 4,
        duplicates: 2,
        late: 1,
        corrupt: 2,
        no_responders: 1,
    };
    assert_eq!(totals.measured, expected);
    assert_eq!(totals.unmatched, 4);
    assert_eq!(totals.warmup, Counts::default());
}

#[test]
fn answers_of_older_servers_name_no_subject() {
    let mut run = run();
    run.begin(1, 5, 0, 0);
    for headers in [
        &b"NATS/1.0 503\r\n\r\n"[..],
        b"NATS/1.0 100 Idle\r\n\r\n",
        b"junk",
    ] {
        let status = Message {
            headers: Some(headers),
            ..message(b"")
        };
        run.handle_reply(1, &status, 1);
    }
    assert_eq!((run.warmup.no_responders, run.unmatched), (1, 2));
}

#[test]
fn stopping_drops_what_was_planned_and_waits_for_what_was_sent() {
    let mut run = run();
    let due = run.poll_due(0).unwrap();
    let id = run.begin(0, 0, due, 120 * MS);
    run.stop(130 * MS);
    assert_eq!(run.poll_due(u64::MAX), None);
    assert!(!run.is_over(140 * MS));
    assert_eq!(run.wakes_at(140 * MS, true), 170 * MS);
    run.handle_reply(0, &message(&reply(id)), 140 * MS);
    run.expire(140 * MS, drop);
    assert!(run.is_over(140 * MS));
    assert_eq!(run.finish(140 * MS).0.duration, 30 * MS);
}

#[test]
fn a_second_is_told_once() {
    let mut run = run();
    assert_eq!(run.poll_second(999 * MS), None);
    let id = run.begin(0, 0, 990 * MS, 995 * MS);
    run.handle_reply(0, &message(&reply(id)), 1000 * MS);
    let second = run.poll_second(1000 * MS).unwrap();
    assert_eq!(
        (second.count, second.sum, second.max),
        (1, 10 * MS, 10 * MS)
    );
    assert_eq!(run.poll_second(1500 * MS), None);
    assert_eq!(run.poll_second(5500 * MS).unwrap().count, 0);
    assert_eq!(run.poll_second(5999 * MS), None);
}

#[test]
fn threads_share_the_rate_by_their_users() {
    let config = config(r#","threads":2"#);
    let count = |thread, users| {
        let mut run = Run::new(&config, thread, users);
        let mut count = 0;
        while run.poll_due(u64::MAX).is_some() {
            count += 1;
        }
        count
    };
    assert_eq!(count(0, 3), 23);
    assert_eq!(count(1, 1), 7);
}

#[test]
fn a_closed_loop_keeps_so_many_outstanding_until_the_end() {
    let mut run = Run::new(&config(r#","rate":0,"outstanding":3"#), 0, 4);
    let send = |run: &mut Run, now| {
        let mut ids = Vec::new();
        while let Some(due) = run.poll_due(now) {
            assert_eq!(due, now);
            ids.push(run.begin(0, 0, due, now));
        }
        ids
    };
    let first = send(&mut run, 0);
    assert_eq!((first.len(), run.outstanding()), (3, 3));
    assert_eq!(run.wakes_at(0, true), 50 * MS);
    for (n, id) in first.iter().enumerate() {
        run.handle_reply(0, &message(&reply(*id)), n as u64);
        assert_eq!(send(&mut run, 99 * MS + n as u64).len(), 1);
    }
    // No request is answered: each times out, and another takes its place.
    run.expire(150 * MS, drop);
    assert_eq!(
        (send(&mut run, 150 * MS).len(), run.is_over(150 * MS)),
        (3, false)
    );
    run.expire(300 * MS, drop);
    assert_eq!(send(&mut run, 300 * MS).len(), 0);
    assert!(!run.is_sending(300 * MS) && run.is_over(300 * MS));
    let (totals, _) = run.finish(300 * MS);
    let ended = |counts: Counts| (counts.sent, counts.received, counts.timed_out);
    assert_eq!(ended(totals.warmup), (6, 3, 3));
    assert_eq!(ended(totals.measured), (3, 0, 3));
    assert_eq!((totals.max_send_lag, totals.duration), (0, 200 * MS));
}

#[test]
fn in_a_closed_loop_latency_is_service_time() {
    let mut run = Run::new(&config(r#","rate":0,"outstanding":1"#), 0, 4);
    let due = run.poll_due(120 * MS).unwrap();
    let id = run.begin(2, 1, due, 120 * MS);
    run.handle_reply(2, &message(&reply(id)), 127 * MS);
    let (totals, _) = run.finish(300 * MS);
    assert_eq!(totals.latency.sum, 7 * u128::from(MS));
    assert_eq!(totals.service.sum, totals.latency.sum);
}

#[test]
fn threads_share_the_number_outstanding() {
    let config = config(r#","rate":0,"outstanding":5,"threads":2"#);
    let count = |thread| {
        let mut run = Run::new(&config, thread, 2);
        let mut count = 0;
        while let Some(due) = run.poll_due(0) {
            run.begin(0, 0, due, 0);
            count += 1;
        }
        count
    };
    assert_eq!((count(0), count(1)), (3, 2));
}

#[test]
fn a_sweep_is_one_request_of_each_user_counted_apart() {
    for json in [
        r#","sweep":true"#,
        r#","sweep":true,"rate":0,"outstanding":1"#,
    ] {
        let mut run = Run::new(&config(json), 0, 4);
        let (mut now, mut users) = (0, Vec::new());
        while !run.poll_swept(now) {
            while let Some(due) = run.poll_due(now) {
                let user = run.sweep_user().unwrap();
                users.push(user);
                if user == 2 {
                    run.refuse(due);
                    continue;
                }
                let id = run.begin(user, 0, due, now);
                if user != 3 {
                    run.handle_reply(user, &message(&reply(id)), now + MS);
                }
            }
            assert!(!run.is_over(now) && !run.begin_warmup());
            assert!(run.wakes_at(now, true) > now || run.poll_due(now).is_some());
            assert!(run.recorder().is_none());
            now += 10 * MS;
            run.expire(now, drop);
        }
        assert_eq!(users, [0, 1, 2, 3], "{json}");
        assert!(!run.poll_swept(now), "it is said once");
        assert!(run.begin_warmup() && !run.begin_warmup());
        assert_eq!(run.sweep_user(), None);
        // Numbers go on, and times begin at zero again.
        let late = 3;
        run.handle_reply(3, &message(&reply(late - 1)), 0);
        let due = run.poll_due(150 * MS).unwrap();
        let id = run.begin(3, 0, due, 150 * MS);
        assert_eq!(id, late);
        run.stop(150 * MS);
        run.handle_reply(3, &message(&reply(id)), 160 * MS);
        let (totals, _) = run.finish(160 * MS);
        let sweep = totals.sweep.unwrap();
        let expected = Counts {
            sent: 4,
            received: 2,
            timed_out: 1,
            errors: 1,
            late: 1,
            ..Counts::default()
        };
        assert_eq!(sweep.counts, expected, "{json}");
        assert_eq!(sweep.duration, now);
        assert_eq!(totals.warmup.sent + totals.measured.sent, 1);
        assert_eq!(totals.unmatched, 0);
    }
}

#[test]
fn a_run_stopped_in_its_sweep_has_measured_nothing() {
    let mut run = Run::new(&config(r#","sweep":true"#), 0, 4);
    let due = run.poll_due(0).unwrap();
    let id = run.begin(0, 0, due, 0);
    run.stop(150 * MS);
    assert!(!run.is_over(150 * MS));
    run.handle_reply(0, &message(&reply(id)), 160 * MS);
    assert!(run.is_over(160 * MS) && !run.begin_warmup());
    let (totals, last) = run.finish(160 * MS);
    assert_eq!(totals.sweep.map(|sweep| sweep.counts.received), Some(1));
    assert_eq!((totals.duration, totals.measured), (0, Counts::default()));
    assert!(last.is_none());
}

proptest! {
    /// Every request ends as exactly one of the three outcomes, for any replies of the server.
    #[test]
    fn nothing_is_unaccounted_for(
        outstanding in 0u32..6,
        steps in prop::collection::vec((0u8..6, 0u64..30, 0u32..4), 1..300),
    ) {
        let rate = if outstanding == 0 { 100 } else { 0 };
        let mut run = Run::new(
            &config(&format!(r#","rate":{rate},"outstanding":{outstanding}"#)),
            0,
            4,
        );
        let (mut now, mut ids) = (0, Vec::new());
        for (what, number, user) in steps {
            now += number * MS / 4;
            let id = ids.get(number as usize % ids.len().max(1)).copied().unwrap_or(number);
            match what {
                0 | 1 => if let Some(due) = run.poll_due(now) {
                    if number == 0 {
                        run.refuse(due);
                    } else {
                        ids.push(run.begin(user, number as u16 % 2, due, now));
                    }
                },
                2 => {
                    run.handle_reply(user, &message(&reply(id)), now);
                }
                3 => {
                    run.handle_reply(user, &message(&id.to_le_bytes()), now);
                }
                4 => {
                    let headers = Some(&b"NATS/1.0 503\r\n\r\n"[..]);
                    run.handle_reply(user, &Message { headers, ..message(b"") }, now);
                }
                _ => run.expire(now, drop),
            }
            while let Some(recorder) = run.recorder()
                && recorder.poll_interval(now, histogram).is_some() {}
            let counts = run.so_far();
            let ended = counts.received + counts.timed_out + counts.errors;
            prop_assert_eq!(counts.sent, ended + run.outstanding());
        }
        run.expire(u64::MAX, drop);
        prop_assert_eq!(run.outstanding(), 0);
        let counts = run.so_far();
        prop_assert_eq!(counts.sent, counts.received + counts.timed_out + counts.errors);
        let measured = run.measured;
        let (totals, _) = run.finish(now);
        prop_assert_eq!(totals.latency.count, measured.received);
    }
}

#[test]
fn a_closed_loop_ends_after_its_calls() {
    let json = r#","rate":0,"outstanding":3,"calls":7,"warmup_s":0,"duration_s":9"#;
    let mut run = Run::new(&config(json), 0, 4);
    let mut now = 0;
    while let Some(due) = run.poll_due(now) {
        let id = run.begin(1, 0, due, now);
        run.handle_reply(1, &message(&reply(id)), now + MS);
        now += 2 * MS;
    }
    assert!(run.is_over(now) && !run.is_sending(now));
    let (totals, _) = run.finish(now);
    assert_eq!((totals.measured.sent, totals.measured.received), (7, 7));
    assert_eq!(totals.duration, 6 * 2 * MS, "until the last was sent");
}

#[test]
fn calls_are_divided_among_threads_and_the_warm_up_is_none() {
    let json = r#","rate":0,"outstanding":4,"calls":5,"threads":2,"duration_s":9"#;
    let config = config(json);
    let sent = [0, 1].map(|thread| {
        let mut run = Run::new(&config, thread, 2);
        // The warm-up lasts 100 ms.
        for now in (0..200).map(|ms| ms * MS) {
            if let Some(due) = run.poll_due(now) {
                let id = run.begin(1, 0, due, now);
                run.handle_reply(1, &message(&reply(id)), now);
            }
        }
        let (totals, _) = run.finish(200 * MS);
        assert_eq!(totals.warmup.sent, 100);
        totals.measured.sent
    });
    assert_eq!(sent, [3, 2]);
}

#[test]
fn an_answer_ends_the_one_request_of_its_user() {
    let json = r#","rate":0,"outstanding":4,"warmup_s":0"#;
    let mut run = Run::new(&config(json), 0, 4);
    let ask = |run: &mut Run, user| {
        let due = run.poll_due(0).unwrap();
        reply(run.begin(user, 0, due, 0))
    };
    let right = ask(&mut run, 0);
    run.handle_response(0, 200, &right, MS);
    run.handle_response(0, 200, &right, MS);
    // Another user's reply, which its payload names, and a payload without an id.
    let other = ask(&mut run, 1);
    ask(&mut run, 2);
    run.handle_response(2, 200, &other, MS);
    run.handle_response(1, 200, b"short", MS);
    for status in [503, 503, 429] {
        ask(&mut run, 3);
        run.handle_response(3, status, b"no", MS);
    }
    ask(&mut run, 3);
    run.fail(3);
    run.fail(3);
    assert_eq!(run.outstanding(), 0);
    let (totals, _) = run.finish(MS);
    let Counts {
        sent,
        received,
        errors,
        corrupt,
        duplicates,
        no_responders,
        ..
    } = totals.measured;
    assert_eq!((sent, received, errors), (7, 1, 6));
    assert_eq!((corrupt, duplicates, no_responders), (2, 1, 2));
    assert_eq!(totals.statuses, BTreeMap::from([(429, 1), (503, 2)]));
}

#[test]
fn a_page_is_judged_by_its_size() {
    let json =
        r#","transport":"rest","fetch":true,"reply_bytes":1,"rate":0,"outstanding":2,"warmup_s":0"#;
    let json = format!(r#"{{"address":"127.0.0.1:1","users":4,"duration_s":0.2{json}}}"#);
    let mut run = Run::new(&RequestorConfig::from_json(&json).unwrap(), 0, 4);
    for (user, body) in [(0, &b"a"[..]), (1, b"ab")] {
        let due = run.poll_due(0).unwrap();
        run.begin(user, 0, due, 0);
        run.handle_response(user, 200, body, MS);
    }
    let (totals, _) = run.finish(MS);
    assert_eq!((totals.measured.received, totals.measured.corrupt), (1, 1));
}

#[test]
fn with_nobody_to_send_it_what_is_due_wakes_nobody() {
    let mut run = Run::new(&config(r#","warmup_s":0"#), 0, 4);
    let due = run.poll_due(0).unwrap();
    run.begin(0, 0, due, 0);
    // The next one is due after 10 ms, and the first one expires after 50.
    assert_eq!(run.wakes_at(20 * MS, true), 10 * MS);
    assert_eq!(run.wakes_at(20 * MS, false), 50 * MS);
}
