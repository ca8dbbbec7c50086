//! Broadcasts to users of a server and prints the result.
//!
//! ```text
//! cargo run --release -p subjectbus-loadgen --example broadcaster -- '{
//!   "transport": "tcp", "address": "127.0.0.1:4222", "users": 1000, "outstanding": 16,
//!   "warmup_s": 1, "duration_s": 5}'
//! ```
//!
//! The argument is a broadcaster's configuration.

use std::error::Error;
use std::time::Duration;

use serde_json::Value;
use subjectbus_loadgen::{Broadcaster, BroadcasterConfig};

#[allow(clippy::print_stdout, reason = "an example has no other way to tell")]
fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args()
        .nth(1)
        .ok_or("usage: broadcaster CONFIG (a JSON object)")?;
    let engine = Broadcaster::new(BroadcasterConfig::from_json(&text)?);
    engine.connect()?;
    wait_for("connected", &engine)?;
    engine.start(None)?;
    wait_for("done", &engine)?;
    let mut result: Value = serde_json::from_str(&engine.result()?)?;
    if let Some(fields) = result.as_object_mut() {
        fields.remove("intervals");
    }
    println!("{result:#}");
    Ok(())
}

fn wait_for(phase: &str, engine: &Broadcaster) -> Result<(), Box<dyn Error>> {
    loop {
        let snapshot: Value = serde_json::from_str(&engine.progress())?;
        if snapshot["phase"] == phase {
            return Ok(());
        }
        if snapshot["phase"] == "failed" {
            return Err(snapshot["error"].to_string().into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
