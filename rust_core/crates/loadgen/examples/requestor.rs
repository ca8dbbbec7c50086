//! Drives the benchmark workload against a server and prints both results.
//!
//! ```text
//! cargo run --release -p subjectbus-loadgen --example requestor -- '{
//!   "transport": "ws", "address": "127.0.0.1:8080", "users": 500, "rate": 2000,
//!   "warmup_s": 1, "duration_s": 5}'
//! ```
//!
//! The argument is a requestor's configuration, from which the providers' is derived.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use subjectbus_loadgen::{Provider, ProviderConfig, Requestor, RequestorConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args()
        .nth(1)
        .ok_or("usage: requestor CONFIG (a JSON object)")?;
    let config = RequestorConfig::from_json(&text)?;
    let target = &config.target;
    let provider = json!({
        "transport": target.transport.to_string(),
        "address": target.address.to_string(),
        "host": target.host,
        "path": target.path,
        "providers": config.providers,
        "reply_bytes": config.reply_bytes,
    });
    let provider = Provider::new(ProviderConfig::from_json(&provider.to_string())?);
    provider.connect()?;
    wait_for("connected", || provider.progress())?;
    let has_sweep = config.sweep;
    let requestor = Requestor::new(config);
    requestor.connect()?;
    wait_for("connected", || requestor.progress())?;
    requestor.start(None)?;
    if has_sweep {
        wait_for("swept", || requestor.progress())?;
        requestor.start(None)?;
    }
    wait_for("done", || requestor.progress())?;
    let result = requestor.result()?;
    provider.stop()?;
    wait_for("done", || provider.progress())?;
    show("requestor", &result)?;
    show("provider", &provider.result()?)
}

fn wait_for(phase: &str, progress: impl Fn() -> String) -> Result<(), Box<dyn Error>> {
    loop {
        let snapshot: Value = serde_json::from_str(&progress())?;
        if snapshot["phase"] == phase {
            return Ok(());
        }
        if snapshot["phase"] == "failed" {
            return Err(snapshot["error"].to_string().into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[allow(clippy::print_stdout, reason = "an example has no other way to tell")]
fn show(name: &str, result: &str) -> Result<(), Box<dyn Error>> {
    let mut result: Value = serde_json::from_str(result)?;
    if let Some(fields) = result.as_object_mut() {
        fields.remove("intervals");
    }
    println!("{name} {result:#}");
    Ok(())
}
