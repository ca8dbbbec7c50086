//! The program as it is used: short runs, wrong command lines, and processes that die.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use io_uring::{IoUring, squeue};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(30);

/// In a process group of its own, to which the processes that it forks belong as well.
fn floor(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floor"));
    command
        .args(line.split_whitespace())
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(line: &str) -> Child {
    floor(line).spawn().expect("floor starts")
}

fn run(line: &str) -> Output {
    let child = start(line);
    let group = child.id();
    let output = child.wait_with_output().expect("floor runs");
    assert_eq!(living(group), [0; 0], "processes left behind by {line}");
    output
}

/// Processes of a group that have not ended.
fn living(group: u32) -> Vec<i32> {
    let in_group = |pid: i32| {
        // It may end meanwhile.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        (fields[0] != "Z" && fields[2] == group.to_string()).then_some(pid)
    };
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(in_group)
        .collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::yield_now();
    }
}

/// Drivers that the kernel allows.
fn drivers() -> Vec<&'static str> {
    let ring = IoUring::<squeue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2);
    match ring {
        Err(error) => {
            eprintln!("io_uring is not tested: {error}");
            vec!["epoll"]
        }
        Ok(_) => vec!["epoll", "uring"],
    }
}

/// The options that give a driver several tables in both processes.
fn several_tables(driver: &str) -> &'static str {
    match driver {
        "epoll" => "--server-threads 3 --load-threads 2",
        _ => "--server-rings 3 --load-rings 2",
    }
}

fn result(line: &str) -> Value {
    let output = run(line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{line}: {} {errors}",
        output.status
    );
    assert_eq!(errors, "", "{line}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn number(result: &Value, field: &str) -> f64 {
    result[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field} is no number in {result}"))
}

/// For each driver: one table in each process and several, without greeting and with it.
fn variants() -> Vec<(&'static str, String, bool)> {
    let variant = |driver, tables, greeting| {
        let flag = if greeting { "--greeting" } else { "" };
        (
            driver,
            format!("--driver {driver} {tables} {flag}"),
            greeting,
        )
    };
    drivers()
        .into_iter()
        .flat_map(|driver| ["", several_tables(driver)].map(|tables| (driver, tables)))
        .flat_map(|(driver, tables)| [false, true].map(|on| variant(driver, tables, on)))
        .collect()
}

/// What both modes report. Greetings come first on every connection, so that bytes which one end sends
/// and the other does not expect would be errors of what follows.
fn check_common(result: &Value, mode: &str, driver: &str, greeting: bool) {
    assert_eq!(
        (&result["mode"], &result["driver"]),
        (&mode.into(), &driver.into())
    );
    assert_eq!(result["greeting"], greeting);
    assert_eq!(result["connections"], 200);
    assert_eq!(result["errors"], 0, "{result}");
    assert_eq!(result["retried_connects"], 0);
    let seconds = number(result, "duration_s");
    assert!((0.3..5.0).contains(&seconds), "{seconds}");
    for field in ["connect_s", "connections_per_s", "server_rss_bytes"] {
        assert!(number(result, field) > 0.0, "{field}: {result}");
    }
    // Each process has one core, so that its processor time cannot be more than what has passed; it is
    // read a moment later. It may be 0: a kernel whose machine is virtual takes the time off that its host
    // has stolen, which can be all of these few milliseconds.
    let connect_us = number(result, "connect_s") * 1e6;
    for process in ["server", "load"] {
        let each = number(result, &format!("{process}_cpu_us_per_connection"));
        let all = each * 200.0;
        assert!(
            (0.0..connect_us * 2.0).contains(&all),
            "{process}: {result}"
        );
    }
    assert!(number(result, "server_rss_bytes_per_connection") >= 0.0);
}

#[test]
fn relay() {
    for (driver, options, greeting) in variants() {
        let result = result(&format!(
            "relay --connections 200 --outstanding 64 --duration 0.3 --warmup 0.1 {options}"
        ));
        check_common(&result, "relay", driver, greeting);
        assert_eq!(result["outstanding"], 64);
        let requests = number(&result, "requests");
        assert!(requests > 0.0);
        let rate = requests / number(&result, "duration_s");
        assert!(
            (number(&result, "requests_per_s") - rate).abs() < 1.0,
            "{result}"
        );
        for field in ["server_cpu_us_per_request", "load_cpu_us_per_request"] {
            assert!(number(&result, field) > 0.0, "{field}: {result}");
        }
    }
}

#[test]
fn fanout() {
    for (driver, options, greeting) in variants() {
        let result = result(&format!(
            "fanout --connections 200 --bytes 100 --publish-duration 0.3 --warmup 0.1 {options}"
        ));
        check_common(&result, "fanout", driver, greeting);
        let (messages, deliveries) = (number(&result, "messages"), number(&result, "deliveries"));
        assert!(messages > 0.0);
        // Up to the messages that were under way at the beginning and at the end.
        assert!(
            (deliveries - messages * 200.0).abs() <= 200.0 * 16.0,
            "{result}"
        );
        for field in ["server_cpu_us_per_delivery", "load_cpu_us_per_delivery"] {
            assert!(number(&result, field) > 0.0, "{field}: {result}");
        }
        let spread = &result["spread_us"];
        let (median, max) = (number(spread, "median"), number(spread, "max"));
        assert!(median > 0.0 && median <= max, "{result}");
    }
}

/// Messages that no socket takes at once are sent in parts. That none of them is an error says that
/// every one has arrived, be it after the measured phase.
#[test]
fn sends_in_parts() {
    for driver in drivers() {
        for line in [
            "relay --connections 10 --outstanding 20 --duration 0.3 --warmup 0 --providers 3 \
             --request-bytes 300000 --reply-bytes 3000001",
            "fanout --connections 10 --outstanding 5 --publish-duration 0.3 --warmup 0 \
             --bytes 3000001",
        ] {
            let result = result(&format!("{line} --driver {driver}"));
            assert_eq!(result["errors"], 0, "{result}");
        }
    }
}

#[test]
fn wrong_command_lines_end_with_2_and_say_why() {
    for (line, why) in [
        ("", "no mode given"),
        ("relay --bytes 5", "unknown option --bytes for relay"),
        ("relay --wrong 5", "unknown option --wrong"),
        (
            "fanout --connections many",
            "--connections: \"many\" is not a whole number",
        ),
        ("relay --duration", "--duration has no value"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            errors.starts_with("floor: ") && errors.contains(why),
            "{line}: {errors}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_cannot_be_done_ends_with_1_and_says_why() {
    for (line, why) in [
        ("relay --server-cpu 1023", "cannot run on core 1023"),
        (
            "relay --connections 10000000 --server-threads 1",
            "need at least",
        ),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(why), "{line}: {errors}");
        assert!(output.stdout.is_empty());
    }
}

/// Whichever of the three processes is killed, the other two end, be it while 5000 are established.
#[test]
fn nothing_survives_a_process_that_dies() {
    for (driver, options) in drivers().into_iter().flat_map(|driver| {
        ["--connections 200", "--connections 5000 --greeting"].map(|options| (driver, options))
    }) {
        for victim in 0..3 {
            let mut child = start(&format!("relay --driver {driver} --duration 600 {options}"));
            let group = child.id();
            wait_until("three processes", || living(group).len() == 3);
            let mut processes = living(group);
            processes.sort_unstable();
            let pid = Pid::from_raw(processes[victim]).expect("a process");
            kill_process(pid, Signal::KILL).expect("killed");
            wait_until("the end", || living(group).is_empty());
            let status = child.wait().expect("floor ends");
            assert!(!status.success(), "{driver}, process {victim}");
        }
    }
}
