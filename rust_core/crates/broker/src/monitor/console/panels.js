// What the charts and the tables show.

/** The series of a chart from columns of the history: {name: column}. */
const columns = (names) => (history) =>
  Object.entries(names).map(([name, column]) => ({ name, values: history.column(column) }));

/** As many lines as can be told apart; more shards are shown by their extremes. */
const MOST_SHARDS = 6;

function shardSeries(history) {
  const names = Object.keys(history.columns).filter((name) => name.startsWith("cpu_percent_shard_"));
  const shards = names.map((name) => ({ name: `Shard ${name.split("_").at(-1)}`, values: history.column(name) }));
  if (shards.length <= MOST_SHARDS) return shards;
  const over = (combine) => history.times.map((_, i) => {
    const values = shards.map(({ values: column }) => column[i]).filter(known);
    return values.length ? combine(values) : null;
  });
  return [
    { name: "Busiest", values: over((values) => Math.max(...values)) },
    { name: "Mean", values: over((values) => values.reduce((a, b) => a + b) / values.length) },
    { name: "Idlest", values: over((values) => Math.min(...values)) },
  ];
}

function memorySeries(history) {
  const parts = columns({
    Connections: "mem_connections_bytes",
    Routing: "mem_routing_bytes",
    Pending: "pending_bytes",
    Buffers: "mem_buffers_bytes",
  })(history);
  const named = (i) => parts.reduce((total, { values }) => total + (values[i] ?? 0), 0);
  const rest = (total, i) => (total === null ? null : Math.max(0, total - named(i)));
  return [...parts, { name: "Other", values: history.column("mem_bytes").map(rest) }];
}

const CHARTS = [
  {
    title: "Sessions by transport", unit: UNITS.count, stacked: true,
    series: columns({ WebSocket: "connections_websocket", TCP: "connections_tcp", HTTP: "connections_http" }),
  },
  { title: "Messages", unit: UNITS.rate, series: columns({ In: "in_msgs_per_s", Out: "out_msgs_per_s" }) },
  { title: "Bytes", unit: UNITS.byteRate, series: columns({ In: "in_bytes_per_s", Out: "out_bytes_per_s" }) },
  { title: "Gateway requests", unit: UNITS.rate, series: columns({ Requests: "gateway_requests_per_s" }) },
  {
    title: "Gateway latency", unit: UNITS.microseconds,
    series: (history) => ["p50", "p99"].map((name) => (
      { name, values: history.columnWhere(`gateway_${name}_us`, "gateway_requests_per_s") })),
  },
  { title: "Gateway requests in flight", unit: UNITS.count, series: columns({ "In flight": "gateway_in_flight" }) },
  { title: "CPU by shard", unit: UNITS.percent, series: shardSeries },
  { title: "Memory by purpose", unit: UNITS.bytes, stacked: true, series: memorySeries },
  { title: "Pending bytes", unit: UNITS.bytes, series: columns({ Pending: "pending_bytes" }) },
  {
    title: "Connections opened and closed", unit: UNITS.rate,
    series: columns({ Opened: "opened_per_s", Closed: "closed_per_s" }),
  },
  { title: "Subscriptions", unit: UNITS.count, series: columns({ Subscriptions: "subscriptions" }) },
  { title: "Dropped messages", unit: UNITS.rate, series: columns({ Dropped: "dropped_per_s" }) },
];

/**
 * Connections as a table, by the column named `sort`, which stands where it is seen on a narrow screen too; `open`
 * shows one of them.
 */
function connectionTable(title, empty, sort, open) {
  const field = (name) => (row) => row[name];
  const columns = [
    { name: "Id", value: field("cid"), unit: UNITS.id, open },
    { name: "Name", value: (row) => row.name || `${row.ip}:${row.port}`, open },
    { name: "Transport", value: (row) => (row.type === "nats" ? "tcp" : row.type) },
    { name: "Pending", value: field("pending_bytes"), unit: UNITS.bytes },
    { name: "Messages", value: field("rate"), unit: UNITS.rate },
    { name: "To it", value: field("out_rate"), unit: UNITS.rate },
    { name: "By it", value: field("in_rate"), unit: UNITS.rate },
    { name: "Bytes", value: field("byte_rate"), unit: UNITS.byteRate },
    { name: "Subs", value: field("subscriptions"), unit: UNITS.exact },
    { name: "Shard", value: field("shard"), unit: UNITS.id },
    { name: "Idle", value: field("idle"), order: (row) => -Date.parse(row.last_activity) },
  ];
  const at = columns.findIndex(({ name }) => name === sort);
  const place = Math.min(at, 2);
  columns.splice(place, 0, ...columns.splice(at, 1));
  return new Table({ title, empty, columns, sort: place, most: 12, key: field("cid") });
}

/** The same connections with their rates since an earlier answer; null where that had them not. */
class ConnectionRates {
  #before = new Map();
  #at = NaN;
  #server = null;

  rate({ server_id: server, now, connections }) {
    // A broker that was restarted gives the same ids to others.
    if (server !== this.#server) this.#before = new Map();
    const at = Date.parse(now) / 1000;
    const seconds = at - this.#at;
    const rates = connections.map((row) => {
      const before = this.#before.get(row.cid);
      const rate = (...names) => {
        const grown = names.reduce((total, name) => total + row[name] - (before?.[name] ?? NaN), 0);
        return grown >= 0 && seconds > 0 ? grown / seconds : null;
      };
      return {
        ...row, in_rate: rate("in_msgs"), out_rate: rate("out_msgs"),
        rate: rate("in_msgs", "out_msgs"), byte_rate: rate("in_bytes", "out_bytes"),
      };
    });
    this.#before = new Map(connections.map((row) => [row.cid, row]));
    [this.#at, this.#server] = [at, server];
    return rates;
  }
}

const subjectTable = () => new Table({
  title: "Hottest subjects", empty: "Nothing is being published.", sort: 1, most: 16, key: (row) => row.subject,
  columns: [
    { name: "Subject", value: (row) => row.subject },
    { name: "Messages", value: (row) => row.msgs_per_s, unit: UNITS.rate },
    { name: "Bytes", value: (row) => row.bytes_per_s, unit: UNITS.byteRate },
    { name: "Share", value: (row) => row.share * 100, unit: UNITS.percent, share: (row) => row.share },
  ],
});

/** Counts by reason; `pick` takes them from /varz. */
class ReasonTable {
  constructor(title, empty, pick) {
    this.pick = pick;
    this.table = new Table({
      title, empty, sort: 1, key: (row) => row.reason,
      columns: [
        { name: "Reason", value: (row) => words(row.reason) },
        { name: "So far", value: (row) => row.count, unit: UNITS.exact },
        { name: "Now", value: (row) => row.rate, unit: UNITS.rate },
      ],
    });
  }

  show(look) {
    const counted = Object.entries(this.pick(look.varz) ?? {}).filter(([, count]) => count > 0);
    const rate = (reason) => rateOf(look, (varz) => this.pick(varz)[reason]);
    this.table.show(counted.map(([reason, count]) => ({ reason, count, rate: rate(reason) })));
  }
}

/** A row for each transport. What was upgraded was opened over http, and will be closed as a WebSocket. */
function transportRows({ transports = {} }) {
  const upgraded = { http: transports.websocket?.opened };
  return Object.entries(transports).map(([name, counts]) => ({ name, upgraded: upgraded[name], ...counts }));
}

class TransportTable {
  table = new Table({
    title: "Transports", descending: false, key: (row) => row.name,
    columns: [
      { name: "Transport", value: (row) => row.name },
      { name: "Connections", value: (row) => row.connections, unit: UNITS.exact },
      { name: "Opened", value: (row) => row.opened, unit: UNITS.exact },
      { name: "Upgraded", value: (row) => row.upgraded, unit: UNITS.exact },
      { name: "Closed", value: (row) => row.closed, unit: UNITS.exact },
      { name: "Messages in", value: (row) => row.in_msgs, unit: UNITS.exact },
      { name: "Messages out", value: (row) => row.out_msgs, unit: UNITS.exact },
      { name: "Bytes in", value: (row) => row.in_bytes, unit: UNITS.bytes },
      { name: "Bytes out", value: (row) => row.out_bytes, unit: UNITS.bytes },
    ],
  });

  show({ varz }) {
    this.table.show(transportRows(varz), "each WebSocket connection is opened over http, then upgraded");
  }
}

class ShardTable {
  table = new Table({
    title: "Shards", descending: false, key: (row) => row.index,
    columns: [
      { name: "Shard", value: (row) => row.index, unit: UNITS.id },
      { name: "CPU", value: (row) => row.cpu_percent, unit: UNITS.percent, share: (row) => row.cpu_percent / 100 },
      { name: "Connections", value: (row) => row.connections, unit: UNITS.exact },
      { name: "Pending", value: (row) => row.pending_bytes, unit: UNITS.bytes },
      { name: "Mailbox", value: (row) => row.mailbox, unit: UNITS.exact },
      { name: "Accept queue", value: (row) => sum(row.accept_queue ?? {}), unit: UNITS.exact },
      { name: "Turns", value: (row) => row.turn_rate, unit: UNITS.rate },
      { name: "System calls", value: (row) => row.call_rate, unit: UNITS.rate },
      { name: "Descriptors", value: (row) => row.descriptors?.used, unit: UNITS.exact },
      { name: "Limit", value: (row) => row.descriptors?.limit, unit: UNITS.exact },
    ],
  });

  show(look) {
    const rows = (look.varz.shard ?? []).map((row, i) => ({
      ...row,
      turn_rate: rateOf(look, (varz) => varz.shard[i].turns),
      call_rate: rateOf(look, (varz) => sum(varz.shard[i].calls)),
    }));
    this.table.show(rows);
  }
}

/** [path, value] for each value in nested objects and lists. */
function flatten(value, path = []) {
  if (value === null || typeof value !== "object") return [[path.join("."), value]];
  return Object.entries(value).flatMap(([name, inner]) => flatten(inner, [...path, name]));
}

/** Every value of /varz, by name. */
class ValueTable {
  #look = null;

  constructor(filter) {
    this.filter = filter;
    this.filter.addEventListener("input", () => this.show(this.#look));
    this.table = new Table({
      title: "Everything in /varz", empty: "No value has such a name.", descending: false, key: (row) => row.name,
      columns: [
        { name: "Name", value: (row) => row.name },
        { name: "Value", value: (row) => row.value },
        { name: "Change", value: (row) => row.rate, unit: UNITS.rate },
      ],
    });
  }

  show(look) {
    this.#look = look;
    if (!look) return;
    const wanted = this.filter.value.trim().toLowerCase();
    const before = new Map(look.before ? flatten(look.before) : []);
    const seconds = look.before ? look.varz.uptime_s - look.before.uptime_s : 0;
    const rows = flatten(look.varz).map(([name, value]) => {
      const changes = known(value) && known(before.get(name)) && seconds > 0;
      return { name, value, rate: changes ? (value - before.get(name)) / seconds : null };
    });
    this.table.show(rows.filter(({ name }) => name.toLowerCase().includes(wanted)));
  }
}
