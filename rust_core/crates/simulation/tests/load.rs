//! The shapes of load in virtual time: schedules, starts, ends and waits, and their times in
//! results.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use broker::sim::TCP;
use loadgen::{Broadcaster, Phase};
use serde_json::{Value, json};
use subjectbus_simulation::load::Stage;
use subjectbus_simulation::results::{Broadcast, Message, Progress, Provided, Requested, read};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Make a requestor's settings of 200 users over TCP and 2000 requests a second for one second.
fn users(more: Value) -> Value {
    let base = json!({"transport": "tcp", "users": 200, "providers": 4, "rate": 2000, "duration_s": 1,
        "timeout_s": 5});
    with(base, more)
}

fn providers(more: Value) -> Value {
    with(json!({"transport": "tcp", "providers": 4}), more)
}

fn with(mut base: Value, more: Value) -> Value {
    let fields = base.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    base
}

fn exchange(requestor: Value, provider: Value) -> (Requested, Provided) {
    let mut stage = Stage::exact(2, 1).unwrap();
    stage
        .exchange(&users(requestor), &providers(provider))
        .unwrap()
}

fn sent_by_second(result: &Requested) -> Vec<u64> {
    result.intervals.iter().map(|second| second.sent).collect()
}

#[test]
fn a_paced_connect_phase_takes_its_time() {
    // Attempt k of a thread is due k / 200 s after the first.
    let mut stage = Stage::exact(1, 1).unwrap();
    let paced = json!({"connect_rate": 400, "threads": 2});
    let provider = stage.connect_provider(&providers(json!({}))).unwrap();
    let requestor = stage.connect_requestor(&users(paced)).unwrap();
    requestor.start(None).unwrap();
    let (result, _) = stage.finish(&requestor, &provider).unwrap();
    result.check_clean().unwrap();
    assert_eq!((result.connect_s, result.connections), (0.495, 200));
}

#[test]
fn an_open_loop_follows_its_profile() {
    let ramp =
        json!({"threads": 2, "warmup_s": 0.5, "duration_s": 2, "profile": [[1, 0, 0], [1, 0, 1]]});
    let (result, _) = exchange(ramp, json!({}));
    result.check_clean().unwrap();
    // After t seconds of the ramp 1000 t^2 requests were due.
    assert_eq!(sent_by_second(&result), [0, 1000]);
    assert_eq!((result.warmup.sent, result.duration_s), (0, 2.0));
    assert_eq!((result.max_send_lag_ns, result.latency.max_ns), (0, 0));
    let spike = json!({"rate": 200, "duration_s": 3, "profile": [[1, 1, 1], [1, 5, 5], [1, 1, 1]]});
    let (result, _) = exchange(spike, json!({}));
    assert_eq!(sent_by_second(&result), [200, 1000, 200]);
}

#[test]
fn stopping_early_keeps_what_was_measured() {
    let mut stage = Stage::exact(1, 1).unwrap();
    let provider = stage
        .connect_provider(&providers(
            json!({"delay_s": 0.02, "delay_for_s": 1, "delay_every_s": 1}),
        ))
        .unwrap();
    let long = json!({"duration_s": 600, "warmup_s": 0.2});
    let requestor = stage.connect_requestor(&users(long)).unwrap();
    let at = stage.soon_ns();
    provider.start(Some(at)).unwrap();
    requestor.start(Some(at)).unwrap();
    stage.run_to(at + 199 * MS).unwrap();
    assert_eq!(requestor.phase(), Phase::Warmup);
    stage.run_to(at + 200 * MS).unwrap();
    assert_eq!(requestor.phase(), Phase::Measuring);
    stage.run_to(at + 1400 * MS).unwrap();
    let json = requestor.progress();
    let progress: Progress = read(&json).unwrap();
    // The progress shows the last full second, in which every reply took 20 ms.
    assert_eq!((progress.mean_us, progress.max_us), (20_000.0, 20_000.0));
    assert_eq!((progress.sent, progress.outstanding), (2800, 40));
    requestor.stop().unwrap();
    assert_eq!(requestor.phase(), Phase::Draining);
    let (result, _) = stage.finish(&requestor, &provider).unwrap();
    result.check_clean().unwrap();
    assert_eq!((result.counts.sent, result.duration_s), (2400, 1.2));
}

#[test]
fn a_start_is_at_its_time_of_the_runs_clock() {
    const HOUR: u64 = 3600 * SECOND;
    let mut stage = Stage::exact(1, 1).unwrap();
    let provider = stage.connect_provider(&providers(json!({}))).unwrap();
    // The run's clock is an hour ahead of the engines' machine.
    let more = json!({"warmup_s": 0.2, "duration_s": 0.5, "clock_offset_ns": -(HOUR as i64)});
    let to_come = stage.connect_requestor(&users(more.clone())).unwrap();
    let more = with(more, json!({"first_user": 200}));
    let past = stage.connect_requestor(&users(more)).unwrap();
    let now = stage.soon_ns();
    stage.run_to(now).unwrap();
    to_come.start(Some(now + 300 * MS)).unwrap();
    // Requests that were due before the engine received the start are sent late, and count so.
    past.start(Some(now - 500 * MS)).unwrap();
    let sent = |json: &str| read::<Progress>(json).unwrap().sent;
    stage.run_to(now + 300 * MS).unwrap();
    assert_eq!((sent(&to_come.progress()), past.phase()), (0, Phase::Done));
    stage.run_to(now + 300 * MS + 1).unwrap();
    assert_eq!(sent(&to_come.progress()), 1);
    stage.run_to(now + SECOND + 1).unwrap();
    assert_eq!(to_come.phase(), Phase::Done);
    let results = [&to_come, &past].map(|one| one.result().unwrap());
    let [to_come, past] = results
        .each_ref()
        .map(|json| read::<Requested>(json).unwrap());
    for result in [&to_come, &past] {
        result.check_clean().unwrap();
        assert_eq!((result.counts.sent, result.warmup.sent), (1000, 400));
    }
    // The first measured request was due 0.3 s before.
    assert_eq!(
        (to_come.max_send_lag_ns, past.max_send_lag_ns),
        (0, 300 * MS)
    );
    drop(provider);
}

#[test]
fn a_sweep_lasts_until_its_last_reply() {
    for (load, duration_s) in [
        // The last of 200 requests is due at 199 / 2000 s.
        (json!({}), 0.1195),
        // Eight at once take 25 rounds.
        (json!({"rate": 0, "outstanding": 8}), 0.5),
    ] {
        let mut stage = Stage::exact(1, 1).unwrap();
        let slow = json!({"delay_s": 0.02, "delay_for_s": 1, "delay_every_s": 1});
        let provider = stage.connect_provider(&providers(slow)).unwrap();
        let more = with(json!({"sweep": true, "warmup_s": 0.2}), load);
        let requestor = stage.connect_requestor(&users(more)).unwrap();
        provider.start(None).unwrap();
        requestor.start(None).unwrap();
        stage
            .run_until(Duration::MAX, || requestor.phase() == Phase::Swept)
            .unwrap();
        requestor.start(None).unwrap();
        let (result, _) = stage.finish(&requestor, &provider).unwrap();
        result.check_clean().unwrap();
        let sweep = result.sweep.unwrap();
        assert_eq!((sweep.counts.sent, sweep.counts.received), (200, 200));
        assert_eq!(sweep.duration_s, duration_s);
        assert_eq!(result.duration_s, 1.0);
        assert!(result.warmup.sent > 0);
    }
}

#[test]
fn stalls_begin_with_the_start() {
    let stalling = json!({"delay_s": 0.1, "delay_for_s": 60, "delay_every_s": 60});
    let mut stage = Stage::exact(1, 1).unwrap();
    let provider = stage.connect_provider(&providers(stalling)).unwrap();
    let before = stage.connect_requestor(&users(json!({}))).unwrap();
    before.start(None).unwrap();
    stage
        .run_until(Duration::MAX, || before.phase() == Phase::Done)
        .unwrap();
    let result: Requested = read(&before.result().unwrap()).unwrap();
    assert_eq!((result.counts.received, result.service.max_ns), (2000, 0));
    before.close();
    let requestor = stage.connect_requestor(&users(json!({}))).unwrap();
    let at = Some(stage.soon_ns());
    provider.start(at).unwrap();
    requestor.start(at).unwrap();
    stage
        .run_until(Duration::MAX, || requestor.phase() == Phase::Done)
        .unwrap();
    let result: Requested = read(&requestor.result().unwrap()).unwrap();
    result.check_clean().unwrap();
    for times in [&result.latency, &result.service] {
        assert_eq!(
            (times.count, times.min_ns, times.max_ns),
            (2000, 100 * MS, 100 * MS)
        );
    }
}

#[test]
fn a_limited_rate_is_that_of_all_providers_together() {
    for threads in [1, 3] {
        let closed = json!({"rate": 0, "outstanding": 50});
        let limited = json!({"rate": 500, "threads": threads});
        let (result, provided) = exchange(closed, limited);
        result.check_clean().unwrap();
        // Each request takes two milliseconds, so 499 are answered before the end, and then those
        // in flight.
        assert_eq!((result.counts.received, provided.sent), (549, 549));
        // The first waits for no other, and from the fiftieth on each waits for 49.
        let (least, most) = (result.service.min_ns, result.service.max_ns);
        assert_eq!((least, most), (2 * MS, 100 * MS));
        assert_eq!((result.max_send_lag_ns, result.duration_s), (0, 1.0));
        assert_eq!(result.latency, result.service);
    }
}

#[test]
fn what_still_waits_at_the_end_is_sent_and_late() {
    let (result, provided) = exchange(json!({"timeout_s": 0.2}), json!({"rate": 20}));
    // One request is answered each 50 ms, and an answer within 200 ms of the sending is in time.
    let ended = [result.counts.received, result.counts.timed_out];
    assert_eq!((result.counts.sent, ended), (2000, [4, 1996]));
    assert_eq!(
        (provided.received, provided.sent, provided.dropped),
        (2000, 2000, 0)
    );
}

#[test]
fn users_who_are_too_few_send_late() {
    // Two users make at most 100 requests a second, and 150 are due in the first second.
    let users =
        json!({"transport": "rest", "users": 2, "providers": 4, "rate": 150, "duration_s": 1});
    let slow = json!({"delay_s": 0.02, "delay_for_s": 1, "delay_every_s": 1});
    let mut stage = Stage::exact(1, 1).unwrap();
    let (result, _) = stage.exchange(&users, &providers(slow)).unwrap();
    result.check_clean().unwrap();
    let due = |k: u64| (k as f64 * 1e9 / 150.0).round() as u64;
    let mut free = [0, 0];
    let (mut sum, mut last) = (0, 0);
    for number in 0..150 {
        let user = &mut free[number as usize % 2];
        last = due(number).max(*user);
        *user = last + 20 * MS;
        sum += u128::from(*user - due(number));
    }
    assert_eq!((result.counts.received, result.latency.sum_ns), (150, sum));
    let service = &result.service;
    assert_eq!((service.min_ns, service.max_ns), (20 * MS, 20 * MS));
    assert_eq!(result.duration_s, last as f64 / 1e9);
    assert_eq!(result.max_send_lag_ns, last - due(149));
}

#[test]
fn providers_of_a_known_rate_answer_no_more_and_no_less() {
    let served = 1300.0;
    for asked in [900.0_f64, 1287.0, 1365.0, 2600.0] {
        let load = json!({"rate": asked, "duration_s": 2, "timeout_s": 20});
        let (result, _) = exchange(load, json!({"rate": served}));
        result.check_clean().unwrap();
        let within: u64 = result.intervals[..2]
            .iter()
            .map(|second| second.received)
            .sum();
        let achieved = within as f64 / 2.0;
        // The last one or two are in flight at the end.
        let expected = asked.min(served);
        assert!(
            (expected - 1.0..=expected).contains(&achieved),
            "{asked}: {achieved}"
        );
    }
}

/// Make a broadcaster of 60 users and 100 messages a second for one second.
fn broadcast(stage: &mut Stage, more: Value) -> Broadcaster {
    let base =
        json!({"transport": "tcp", "users": 60, "rate": 100, "duration_s": 1, "timeout_s": 5});
    stage.connect_broadcaster(&with(base, more)).unwrap()
}

fn assert_whole(result: &Broadcast) {
    let received = result.deliveries.received + result.warmup.received;
    assert_eq!(
        result.deliveries.expected + result.warmup.expected,
        received
    );
    let flaws = [
        result.missing,
        result.incomplete,
        result.duplicates,
        result.corrupt,
        result.misrouted,
        result.disconnected,
    ];
    assert_eq!(flaws, [0; 6]);
}

#[test]
fn every_message_reaches_every_user_of_its_subject_in_time() {
    for (transport, subjects, threads) in [("tcp", 1, 1), ("ws", 1, 2), ("ws", 6, 2)] {
        let mut stage = Stage::exact(3, 1).unwrap();
        let more = json!({"transport": transport, "subjects": subjects, "publishers": subjects.min(3),
            "threads": threads, "warmup_s": 0.5, "duration_s": 1.5});
        let engine = broadcast(&mut stage, more);
        engine.start(None).unwrap();
        let result = stage.finish_broadcast(&engine).unwrap();
        assert_whole(&result);
        let sent = (result.deliveries.sent, result.warmup.sent);
        assert_eq!((sent, result.duration_s), ((150, 50), 1.5));
        assert_eq!(result.deliveries.received, 150 * 60 / subjects);
        assert_eq!((result.latency.max_ns, result.spread.max_ns), (0, 0));
        assert_eq!(result.spread.count, 150);
    }
}

#[test]
fn processes_whose_clocks_differ_are_one_together() {
    let mut stage = Stage::exact(2, 1).unwrap();
    let common = json!({"subjects": 2, "warmup_s": 0.3, "list_messages": true});
    let first = json!({"users": 25, "clock_offset_ns": -7_200_000_000_000_i64});
    let second = json!({"users": 35, "first_user": 25, "publishers": 0});
    let leader = broadcast(&mut stage, with(common.clone(), first));
    let follower = broadcast(&mut stage, with(common, second));
    let at = stage.soon_ns();
    follower.start(Some(at)).unwrap();
    leader.start(Some(at)).unwrap();
    let is_done = || leader.phase() == Phase::Done && follower.phase() == Phase::Done;
    stage.run_until(Duration::from_secs(30), is_done).unwrap();
    let results = [&leader, &follower].map(|engine| engine.result().unwrap());
    let [leader, follower] = results
        .each_ref()
        .map(|json| read::<Broadcast>(json).unwrap());
    let sent = leader.deliveries.sent + leader.warmup.sent;
    assert!(sent > 100 && follower.deliveries.sent + follower.warmup.sent == 0);
    for result in [&leader, &follower] {
        assert_whole(result);
        assert_eq!((result.latency.max_ns, result.spread.max_ns), (0, 0));
        let rows = result.messages.as_deref().unwrap();
        assert_eq!(rows.len() as u64, leader.deliveries.sent);
        // On the run's clock all users have received each message when it was due.
        let of_others = leader.messages.as_deref().unwrap().iter().zip(rows);
        for (Message(number, _, first, last), other) in of_others {
            assert!(*first >= at + 300 * MS && first == last);
            assert_eq!((*number, *first, *last), (other.0, other.2, other.3));
        }
    }
    let received = |result: &Broadcast| result.deliveries.received + result.warmup.received;
    assert_eq!(received(&leader) + received(&follower), sent * 30);
}

#[test]
fn a_user_who_has_lost_the_connection_is_not_waited_for() {
    let mut stage = Stage::exact(1, 1).unwrap();
    let engine = broadcast(
        &mut stage,
        json!({"threads": 2, "subjects": 3, "timeout_s": 600}),
    );
    let at = stage.soon_ns();
    engine.start(Some(at)).unwrap();
    stage.run_to(at + 305 * MS).unwrap();
    assert!(stage.cut(TCP, 40));
    stage.run_to(at + SECOND + 1).unwrap();
    assert_eq!(engine.phase(), Phase::Done);
    let result = stage.finish_broadcast(&engine).unwrap();
    // A third of the 69 messages to come are on the user's subject.
    assert_eq!(
        (result.disconnected, result.missing, result.incomplete),
        (1, 23, 23)
    );
    assert_eq!(result.deliveries.sent, 100);
    assert_eq!(result.deliveries.received, 100 * 20 - 23);
}

#[test]
fn a_seed_determines_everything() {
    let run = |seed| {
        let mut stage = Stage::new(3, seed).unwrap();
        let churn =
            json!({"transport": "ws", "users": 20, "threads": 2, "churn_rate": 50, "rate": 500});
        let limited = json!({"rate": 600, "threads": 2});
        stage.exchange(&users(churn), &providers(limited)).unwrap()
    };
    let (first, again, other) = (run(5), run(5), run(6));
    assert!(first == again && first != other);
    // Work and transport take time now, and it is measured.
    assert!(first.0.latency.min_ns > 1_000_000_000 / 600);
}
