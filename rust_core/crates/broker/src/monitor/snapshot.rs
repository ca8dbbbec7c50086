//! The values of all metrics at one time, which every page is made of.

use telemetry::histogram::{Distribution, Histogram};
use telemetry::key::Key;
use telemetry::metric::Metric;
use telemetry::samples::{Label, Number, Samples};
use telemetry::time::unix;

use super::watch::{Watch, resident_bytes};
use crate::metrics::shard::ShardMetrics;
use crate::metrics::table::{ClientListener, Composite, Counter, Flow, Gauge, SystemCall};
use crate::metrics::totals::Totals;
use crate::reason::Reason;
use crate::shared::Shared;
use crate::transport::TransportKind;

/// One look at the broker.
pub(super) struct Snapshot<'a> {
    shared: &'a Shared,
    totals: Totals,
    /// Measurements of the monitor's shard; without them their metrics have no samples.
    watch: Option<&'a Watch>,
    /// Whether new connections are welcome.
    is_ready: bool,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(shared: &'a Shared, watch: Option<&'a Watch>, is_ready: bool) -> Self {
        Self {
            shared,
            totals: shared.totals(),
            watch,
            is_ready,
        }
    }

    /// Visit every metric of the table with its samples.
    pub(super) fn visit(&self, mut visit: impl FnMut(&Metric, &Samples)) {
        for key in Composite::ALL {
            visit(key.about(), &self.composite(*key));
        }
        for key in Flow::ALL {
            let flow = |transport| self.totals.flow(transport, *key);
            visit(key.about(), &by_name(flow));
        }
        for key in Counter::ALL {
            visit(key.about(), &Samples::one(self.totals.value(*key)));
        }
        for key in Gauge::ALL {
            visit(key.about(), &self.by_shard(|shard| gauge(shard, *key)));
        }
    }

    fn composite(&self, key: Composite) -> Samples {
        let (shared, totals) = (self.shared, &self.totals);
        match key {
            Composite::Connections => by_name(|kind| totals.connections_over(kind)),
            Composite::MaxConnections => Samples::one(shared.places.most()),
            Composite::ConnectionsOpened => Samples::one(totals.opened()),
            Composite::WebSocketsOpened => {
                Samples::one(totals.flow(TransportKind::WebSocket, Flow::Opened))
            }
            Composite::ConnectionsClosed => by_name(|reason| totals.closed(reason)),
            Composite::SlowConsumers => Samples::one(totals.closed(Reason::SlowConsumer)),
            Composite::StaleConnections => Samples::one(totals.closed(Reason::Stale)),
            Composite::Subscriptions => Samples::one(totals.subscriptions()),
            Composite::Subjects => self.watched(|watch| Samples::one(watch.subjects())),
            Composite::DroppedMessages => by_name(|reason| totals.dropped(reason)),
            Composite::PendingMessages => by_name(|place| totals.pending(place)),
            Composite::PendingBytes => {
                let backlogs = shared.backlogs.iter().enumerate();
                Samples::by(backlogs.map(|(shard, backlog)| (number(shard), backlog.bytes())))
            }
            Composite::HeldMemory => Samples::one(shared.account.used()),
            Composite::MaxMemory => Samples::one(shared.account.limit()),
            Composite::Memory => {
                self.watched(|watch| Samples::by(watch.memory(shared).by_purpose()))
            }
            Composite::ResidentMemory => Samples::one(resident_bytes()),
            Composite::ProcessCpu => Samples::one(reactor::process_cpu_time().as_secs_f64()),
            Composite::CpuPercent => self.watched(|watch| {
                let percents = watch.cpu_percent().enumerate();
                Samples::by(percents.map(|(shard, percent)| (number(shard), percent)))
            }),
            Composite::ShardIndex => {
                Samples::by((0..shared.metrics.len()).map(|shard| (number(shard), shard)))
            }
            Composite::ShardConnections => {
                self.by_shard(|shard| Totals::sum([shard].into_iter()).connections())
            }
            Composite::ShardTurns => self.by_shard(|shard| shard.turns().count()),
            Composite::ShardCalls => self.by_shard_and(|shard, call: SystemCall| shard.calls(call)),
            Composite::AcceptQueue => {
                self.by_shard_and(|shard, listener: ClientListener| shard.accept_queue(listener))
            }
            Composite::TurnDuration => Samples::Times(self.distribution(ShardMetrics::turns)),
            Composite::TurnBatch => Samples::Counts(self.distribution(ShardMetrics::batches)),
            Composite::GatewayDuration => Samples::Times(self.distribution(ShardMetrics::gateway)),
            Composite::LogSuppressed => Samples::by(shared.log.suppressed()),
            Composite::LogLost => Samples::one(shared.log.lost()),
            Composite::Ready => Samples::one(u64::from(self.is_ready)),
            Composite::Build => {
                let version = env!("CARGO_PKG_VERSION");
                Samples::by_two([(version, shared.driver.to_string(), 1_u64)])
            }
            Composite::StartTime | Composite::ProcessStartTime => Samples::one(unix(shared.start)),
        }
    }

    /// Return samples of the monitor's measurements, if there is a monitor.
    fn watched(&self, samples: impl FnOnce(&Watch) -> Samples) -> Samples {
        self.watch.map_or(Samples::none(), samples)
    }

    fn by_shard<N: Into<Number>>(&self, value: impl Fn(&ShardMetrics) -> N) -> Samples {
        let shards = self.shared.metrics.iter().enumerate();
        Samples::by(shards.map(|(index, shard)| (number(index), value(shard))))
    }

    fn by_shard_and<K: Key<About = &'static str>>(
        &self,
        value: impl Fn(&ShardMetrics, K) -> u64,
    ) -> Samples {
        let shards = self.shared.metrics.iter().enumerate();
        let pairs =
            shards.flat_map(|(index, shard)| K::ALL.iter().map(move |key| (index, shard, *key)));
        Samples::by_two(
            pairs.map(|(index, shard, key)| (number(index), *key.about(), value(shard, key))),
        )
    }

    fn distribution(&self, histogram: fn(&ShardMetrics) -> &Histogram) -> Box<Distribution> {
        let shards = self.shared.metrics.iter();
        Box::new(Distribution::sum(shards.map(|shard| histogram(shard))))
    }
}

/// Return a sample for each key that is described by its name.
fn by_name<K: Key<About = &'static str>, N: Into<Number>>(value: impl Fn(K) -> N) -> Samples {
    Samples::by(K::ALL.iter().map(|key| (*key.about(), value(*key))))
}

fn gauge(shard: &ShardMetrics, gauge: Gauge) -> Number {
    let value = shard.gauge(gauge);
    match gauge {
        Gauge::Cpu => Number::Real(value as f64 / 1e9),
        _ => Number::Whole(value),
    }
}

/// Return a shard's number as a label.
fn number(shard: usize) -> Label {
    shard.to_string().into()
}
