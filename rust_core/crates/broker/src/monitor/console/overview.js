// The page's head: who this broker is, how it is, and what an operator should look at.

/** By how much `pick` grew per second between two looks at /varz; null where there were not two. */
function rateOf({ varz, before }, pick) {
  const seconds = before ? varz.uptime_s - before.uptime_s : 0;
  return seconds > 0 ? (pick(varz) - pick(before)) / seconds : null;
}

const sum = (object) => Object.values(object).reduce((total, value) => total + value, 0);
const share = (part, whole) => (whole > 0 ? part / whole : 0);

/** {title, value: text, detail: text, full: share of a limit}, each a function of {varz, before}. */
const TILES = [
  {
    title: "Connections",
    value: ({ varz }) => UNITS.exact.text(varz.connections),
    detail: ({ varz }) => counted(varz.subscriptions, "subscription"),
    full: ({ varz }) => share(varz.connections, varz.max_connections),
  },
  {
    title: "Messages in",
    value: (look) => UNITS.rate.text(rateOf(look, (varz) => varz.in_msgs)),
    detail: ({ varz }) => `${UNITS.exact.text(varz.in_msgs)} so far`,
  },
  {
    title: "Messages out",
    value: (look) => UNITS.rate.text(rateOf(look, (varz) => varz.out_msgs)),
    detail: ({ varz }) => `${UNITS.exact.text(varz.out_msgs)} so far`,
  },
  {
    title: "Gateway requests",
    value: (look) => UNITS.rate.text(rateOf(look, ({ gateway }) => gateway?.requests)),
    detail: ({ varz: { gateway } }) => {
      const p99 = gateway?.duration_us?.count ? gateway.duration_us.p99 : null;
      return `${UNITS.count.text(gateway?.in_flight)} in flight · p99 ${UNITS.microseconds.text(p99)}`;
    },
  },
  {
    title: "CPU",
    value: ({ varz }) => UNITS.percent.text(varz.cpu),
    detail: ({ varz }) => `of one core · ${counted(varz.cores, "core")}`,
    full: ({ varz }) => share(varz.cpu, 100 * varz.cores),
  },
  {
    title: "Memory",
    value: ({ varz }) => UNITS.bytes.text(varz.mem),
    detail: ({ varz: { memory, connections } }) => {
      // What there is before the first connection would be most of the quotient.
      const many = connections >= 1000;
      const bytes = UNITS.bytes.text(memory?.connections / (many ? connections : 1));
      return `${bytes} ${many ? "a connection" : "for connections"}`;
    },
  },
  {
    title: "Held by clients",
    value: ({ varz }) => UNITS.bytes.text(varz.held_memory),
    detail: ({ varz }) => `of ${UNITS.bytes.text(varz.max_memory)}, ${UNITS.bytes.text(varz.pending_bytes)} pending`,
    full: ({ varz }) => share(varz.held_memory, varz.max_memory),
  },
  {
    title: "Slow consumers",
    value: ({ varz }) => UNITS.exact.text(varz.slow_consumers),
    detail: ({ varz }) => `${counted(sum(varz.conservation?.dropped ?? {}), "message")} dropped`,
  },
];

class Tiles {
  constructor() {
    this.tiles = TILES.map(({ title, full }) => {
      const value = html("dd", { class: "figure" });
      const detail = html("dd", { class: "detail" });
      const bar = html("i", { class: "bar" });
      const gauge = full ? [html("dd", { class: "gauge", "aria-hidden": "true" }, bar)] : [];
      const tile = html("div", { class: "card tile" }, html("dt", {}, title), value, detail, ...gauge);
      return { bar, value, detail, tile };
    });
    this.list = html("dl", { class: "tiles" }, ...this.tiles.map(({ tile }) => tile));
  }

  show(look) {
    this.tiles.forEach(({ bar, value, detail }, index) => {
      const { value: text, detail: more, full } = TILES[index];
      setText(value, text(look));
      setText(detail, more(look));
      if (!full) return;
      bar.style.inlineSize = `${Math.min(1, full(look)) * 100}%`;
      bar.classList.toggle("high", full(look) > 0.9);
    });
  }
}

/** For how long something that happened is worth a look. */
const RECENT_S = 10;

/** How a broker that is ending gets on; empty where it is not. */
const drain = ({ draining, connections }) =>
  (draining ? `draining, ${counted(connections, "connection")} left` : "");

/** What needs an operator's eye now: a list of sentences, empty when all is well. */
function concerns(look) {
  const { varz } = look;
  const found = varz.draining ? [`the broker is ${drain(varz)}`] : [];
  const full = (part, whole, limit, sentence) => {
    if (share(part, whole) > limit) found.push(sentence.replace("%", UNITS.percent.text(share(part, whole) * 100)));
  };
  const grew = (pick, sentence) => {
    const rate = rateOf(look, pick);
    if (rate > 0) found.push(`${sentence} (${UNITS.rate.text(rate)})`);
  };
  full(varz.connections, varz.max_connections, 0.9, "% of all connections are taken");
  full(varz.held_memory, varz.max_memory, 0.5, "% of the memory for connections is used");
  grew(({ slow_consumers: count }) => count, "consumers are closed because they are slow");
  grew(({ conservation }) => sum(conservation?.dropped ?? {}), "messages are dropped");
  grew(({ stalled_clients: count }) => count, "publishers are held back by receivers that fell behind");
  grew(({ accept_failures: count }) => count, "connections cannot be accepted for want of descriptors");
  grew(({ gateway }) => gateway?.timeouts, "gateway requests go unanswered");
  for (const { index, cpu_percent: cpu, descriptors } of varz.shard ?? []) {
    full(cpu, 100, 0.9, `shard ${index} is busy % of the time`);
    full(descriptors?.used, descriptors?.limit, 0.9, `% of the descriptors of shard ${index} are in use`);
  }
  return found;
}

/** How the broker is, in the header, in banners and in the page's title. */
class Status {
  #name = "subjectbus";
  #state = "";
  #looks = [];
  #drain = "";
  #restarted = "";

  show({ varz }) {
    if (this.#looks.length && this.#looks[0].server_id !== varz.server_id) {
      this.#looks = [];
      this.#restarted = `The broker was restarted at ${dayClock(Date.parse(varz.start) / 1000)}.`;
    }
    this.#looks = [...this.#looks.filter(({ uptime_s: then }) => varz.uptime_s - then <= RECENT_S), varz];
    this.#name = plain(varz.server_name);
    this.#drain = drain(varz);
    setText(byId("name"), this.#name);
    setText(byId("version"), plain(varz.version));
    setText(byId("driver"), `${varz.driver} · ${counted(varz.shards, "shard")}`);
    setText(byId("uptime"), varz.uptime);
    setText(byId("taken"), `${UNITS.exact.text(varz.connections)} / ${UNITS.exact.text(varz.max_connections)}`);
    const found = concerns({ varz, before: this.#looks[0] });
    byId("concerns").classList.toggle("some", found.length > 0);
    setText(byId("concerns"), found.length ? `Look here: ${found.join("; ")}.` : "All is well.");
    const connections = counted(varz.connections, "connection", UNITS.count);
    document.title = `${found.length ? "▲ " : ""}${this.#name} · ${connections}`;
  }

  live() {
    if (this.#drain) this.#become("draining", this.#drain);
    else this.#become("live");
    setText(byId("news"), this.#restarted);
  }

  paused() {
    this.#become("paused");
  }

  /** `lastData`: unix seconds, null before there was any. */
  lost(why, lastData) {
    const ago = Math.round(Date.now() / 1000 - lastData);
    setText(byId("why"), why);
    const age = lastData === null ? "There was no data yet." : `Last data at ${dayClock(lastData)}, ${ago} s ago.`;
    setText(byId("age"), age);
    document.title = `✕ ${this.#name} lost`;
    this.#become("lost");
  }

  #become(state, text = state) {
    setText(byId("state"), text);
    // An alert is read out when it appears, not each time that its age grows.
    if (state === this.#state) return;
    this.#state = state;
    document.body.dataset.state = state;
    byId("lost").hidden = state !== "lost";
  }
}
