//! One run of a broker under the load test, determined by a seed. Engines send requests or
//! broadcasts, and must agree with the broker on the outcome of all messages. In some runs
//! connections are cut.

use std::time::Duration;

use broker::sim::{HTTP, TCP};
use loadgen::{Phase, Provider, Requestor};
use serde_json::{Value, json};
use subjectbus_simulation::load::Stage;
use subjectbus_simulation::results::{Broadcast, Counts, Provided, Requested};

use crate::random::Random;

/// Longest virtual time of a load.
const LONGEST: Duration = Duration::from_secs(60);
/// Longest virtual time between two cuts, in nanoseconds.
const BETWEEN_CUTS: usize = 100_000_000;
/// Number of connections of which one is cut.
const CUTTABLE: usize = 12;
/// Providers of each run.
const PROVIDERS: usize = 3;

struct Run {
    stage: Stage,
    random: Random,
    is_verbose: bool,
}

/// Run with `seed`; return the number of received messages.
///
/// # Errors
/// The broken rule, with the figures.
pub(crate) fn run(seed: u64, is_verbose: bool) -> Result<u64, String> {
    let mut random = Random::new(seed ^ 0x10ad);
    let shards = 1 + random.below(3);
    let mut run = Run {
        stage: Stage::new(shards, seed)?,
        random,
        is_verbose,
    };
    let is_cut = run.random.once_in(4);
    let is_broadcast = run.random.once_in(4);
    run.tell(&format!("{shards} shards, cut: {is_cut}"));
    if is_broadcast {
        run.broadcast(is_cut)
    } else {
        run.exchange(is_cut)
    }
}

impl Run {
    fn tell(&self, what: &str) {
        if self.is_verbose {
            println!("{what}");
        }
    }

    fn exchange(&mut self, is_cut: bool) -> Result<u64, String> {
        let (request_bytes, reply_bytes) = (self.payload(), self.payload());
        let requestor = self.requestor(request_bytes, reply_bytes);
        let provider = self.provider(reply_bytes);
        self.tell(&format!("{requestor}\n{provider}"));
        let provider = self.stage.connect_provider(&provider)?;
        let requestor = self.stage.connect_requestor(&requestor)?;
        let at = Some(self.stage.soon_ns());
        provider.start(at).map_err(|error| error.to_string())?;
        requestor.start(at).map_err(|error| error.to_string())?;
        let has_ended = || matches!(requestor.phase(), Phase::Swept | Phase::Done);
        self.go_on(is_cut, has_ended)?;
        if requestor.phase() == Phase::Swept {
            requestor.start(None).map_err(|error| error.to_string())?;
        }
        self.go_on(is_cut, || requestor.phase() == Phase::Done)?;
        self.judge(&requestor, &provider, is_cut)
    }

    fn judge(
        &mut self,
        requestor: &Requestor,
        provider: &Provider,
        is_cut: bool,
    ) -> Result<u64, String> {
        let (requested, provided) = self.stage.finish(requestor, provider)?;
        let Counts {
            sent,
            received,
            timed_out,
            errors,
        } = requested.in_all();
        if sent != received + timed_out + errors {
            return Err(format!("requests are not accounted for: {requested:?}"));
        }
        if provided.received != provided.sent + provided.dropped {
            return Err(format!("replies are not accounted for: {provided:?}"));
        }
        if requested.corrupt + requested.unmatched + requested.duplicates > 0 {
            return Err(format!("replies that no provider has sent: {requested:?}"));
        }
        if provided.corrupt + provided.misrouted + provided.unanswerable > 0 {
            return Err(format!("requests that no user has sent: {provided:?}"));
        }
        if !is_cut {
            check_lossless(&requested, &provided)?;
        }
        Ok(provided.received + received)
    }

    fn broadcast(&mut self, is_cut: bool) -> Result<u64, String> {
        let users = 1 + self.random.below(12);
        let subjects = 1 + self.random.below(4);
        let mut settings = json!({
            "transport": self.random.one_of(&["tcp", "ws"]),
            "users": users,
            "subjects": subjects,
            "publishers": 1 + self.random.below(subjects),
            "threads": 1 + self.random.below(users.min(2)),
            "message_bytes": self.payload().max(24),
            "warmup_s": self.seconds(50),
            "duration_s": self.seconds(300),
            "timeout_s": 1,
        });
        if self.random.once_in(2) {
            settings["outstanding"] = (1 + self.random.below(4)).into();
        } else {
            settings["rate"] = (20 + self.random.below(500)).into();
        }
        self.tell(&settings.to_string());
        let engine = self.stage.connect_broadcaster(&settings)?;
        engine.start(None).map_err(|error| error.to_string())?;
        self.go_on(is_cut, || engine.phase() == Phase::Done)?;
        let result: Broadcast = self.stage.finish_broadcast(&engine)?;
        let received = result.deliveries.received + result.warmup.received;
        let expected = result.deliveries.expected + result.warmup.expected;
        let is_lossless = result.missing + result.incomplete + result.disconnected == 0;
        if expected != received + result.missing
            || result.duplicates + result.corrupt + result.misrouted > 0
            || !(is_lossless || is_cut)
        {
            return Err(format!("deliveries are not as they should be: {result:?}"));
        }
        Ok(received)
    }

    /// Do steps until `is_done`, and cut connections meanwhile.
    fn go_on(&mut self, is_cut: bool, mut is_done: impl FnMut() -> bool) -> Result<(), String> {
        if !is_cut {
            return self.stage.run_until(LONGEST, is_done);
        }
        let clock = self.stage.network().clock();
        let deadline = clock.now() + LONGEST;
        while !is_done() && clock.now() < deadline {
            let pause = Duration::from_nanos(self.random.below(BETWEEN_CUTS) as u64);
            self.stage.run_until(pause, &mut is_done)?;
            let address = self.random.one_of(&[TCP, HTTP]);
            let which = self.random.below(CUTTABLE);
            if self.stage.cut(address, which) {
                self.tell(&format!("connection {which} to {address} is cut"));
            }
        }
        Ok(())
    }

    fn requestor(&mut self, request_bytes: usize, reply_bytes: usize) -> Value {
        let transport = self.random.one_of(&["tcp", "ws", "rest", "rest-new"]);
        let users = 2 + self.random.below(10);
        let threads = 1 + self.random.below(users.min(2));
        let mut settings = json!({
            "transport": transport,
            "users": users,
            "threads": threads,
            "providers": PROVIDERS,
            "request_bytes": request_bytes,
            "reply_bytes": reply_bytes,
            "sweep": self.random.once_in(3),
            "warmup_s": self.seconds(50),
            "duration_s": self.seconds(300),
            "timeout_s": 20,
            "seed": self.random.below(1000),
        });
        if self.random.once_in(2) {
            settings["outstanding"] = (threads + self.random.below(users - threads + 1)).into();
        } else {
            settings["rate"] = (20 + self.random.below(1000)).into();
            settings["arrivals"] = self.random.one_of(&["uniform", "poisson"]).into();
        }
        if !transport.starts_with("rest") && users / threads >= 2 && self.random.once_in(2) {
            settings["churn_rate"] = (10 + self.random.below(100)).into();
        }
        settings
    }

    fn provider(&mut self, reply_bytes: usize) -> Value {
        let mut settings = json!({
            "transport": self.random.one_of(&["tcp", "ws"]),
            "providers": PROVIDERS,
            "threads": 1 + self.random.below(2),
            "reply_bytes": reply_bytes,
        });
        match self.random.below(4) {
            0 => settings["rate"] = (500 + self.random.below(2000)).into(),
            1 => {
                settings["delay_s"] = 0.02.into();
                settings["delay_for_s"] = 0.05.into();
                settings["delay_every_s"] = 0.1.into();
            }
            _ => {}
        }
        settings
    }

    fn payload(&mut self) -> usize {
        let most = self.random.one_of(&[1, 100, 40_000]);
        16 + self.random.below(most)
    }

    /// Return a random time of at most `most_ms` milliseconds, in seconds.
    fn seconds(&mut self, most_ms: usize) -> f64 {
        (1 + self.random.below(most_ms)) as f64 / 1000.0
    }
}

/// Check a run in which no connection was cut: all messages have arrived, and all users are back.
fn check_lossless(requested: &Requested, provided: &Provided) -> Result<(), String> {
    requested.check_clean()?;
    let all = requested.in_all();
    let is_whole = provided.received == all.sent
        && provided.dropped + provided.disconnected + provided.server_errors == 0
        && requested.churned == requested.reconnected;
    if is_whole {
        return Ok(());
    }
    Err(format!(
        "not everything has arrived: {requested:?}, {provided:?}"
    ))
}
