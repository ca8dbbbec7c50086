// What the broker says, asked for once a second while somebody looks.

const PERIOD_MS = 1000;
const TIMEOUT_MS = 5000;
/** Lists of connections are dearer, above all where there are many. */
const LISTS_MS = 5000;
const LISTS_OF_MANY_MS = 30_000;
const MANY_CONNECTIONS = 100_000;
/** Points that the broker keeps of each resolution, in seconds. */
const POINTS = { 1: 600, 10: 720, 60: 1440 };

/** The JSON at `path`; an Error that says what is wrong with it. */
async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`${path.split("?")[0]} answered ${response.status}`);
  return response.json();
}

/** What went wrong, in an operator's words. */
function trouble(error) {
  if (error.name === "TimeoutError") return `no answer within ${TIMEOUT_MS / 1000} s`;
  return error instanceof TypeError ? "no connection" : error.message;
}

/** Columns of one resolution, completed by what comes later. */
class History {
  times = [];
  columns = {};

  constructor(step) {
    this.step = step;
  }

  get path() {
    const since = this.times.length ? `&since=${this.times.at(-1)}` : "";
    return `/history?resolution=${this.step}${since}`;
  }

  /** Whether there is a new point at the broker's time `now`. */
  isDue(now) {
    return !this.times.length || now >= this.times.at(-1) + this.step || now < this.times[0];
  }

  add({ start, now, columns }) {
    // The broker's clock was set back: what it will say is older than what we have.
    if (this.times.length && now < this.times.at(-1) - this.step) [this.times, this.columns] = [[], {}];
    const last = this.times.at(-1) ?? -Infinity;
    const length = Object.values(columns)[0]?.length ?? 0;
    const known = this.times.length;
    for (let i = 0; i < length; i += 1) if (start + i * this.step > last) this.times.push(start + i * this.step);
    const fresh = this.times.length - known;
    const names = new Set([...Object.keys(this.columns), ...Object.keys(columns)]);
    for (const name of names) {
      // Another broker, at the same address, may have other columns.
      const column = (this.columns[name] ??= Array(known).fill(null));
      for (let i = length - fresh; i < length; i += 1) column.push(columns[name]?.[i] ?? null);
    }
    this.#forget();
  }

  #forget() {
    const first = this.times.at(-1) - POINTS[this.step] * this.step;
    const old = this.times.findIndex((time) => time > first);
    if (old <= 0) return;
    for (const column of [this.times, ...Object.values(this.columns)]) column.splice(0, old);
  }

  column(name) {
    return this.columns[name] ?? Array(this.times.length).fill(null);
  }

  /** `name` where `condition` was not zero. */
  columnWhere(name, condition) {
    const holds = this.column(condition);
    return this.column(name).map((value, i) => (holds[i] ? value : null));
  }
}

/**
 * Polls, and tells by events whose `detail` is: for "varz" {varz, before}, for "history" the History, for "lists"
 * {slow, busy, subjects}, for "trouble" why a part could not be had, for "lost" why nothing could; "live" and "paused"
 * have none.
 */
class Feed extends EventTarget {
  #timer = 0;
  #varz = null;
  #listsAt = -Infinity;
  #listed = 0;
  #busy = false;
  #frozen = false;
  lastData = null;

  constructor(step) {
    super();
    this.history = new History(step);
    document.addEventListener("visibilitychange", () => this.resume());
  }

  /** Another resolution, from its beginning. */
  choose(step) {
    this.history = new History(step);
    clearTimeout(this.#timer);
    // Whoever chooses looks, even where the numbers are to stand still.
    if (!this.#busy) this.#poll();
  }

  freeze(frozen) {
    this.#frozen = frozen;
    this.resume();
  }

  /** Polls at once, if anybody looks. */
  resume() {
    clearTimeout(this.#timer);
    if (this.#busy) return;
    if (document.hidden || this.#frozen) this.#tell("paused");
    else this.#poll();
  }

  async #poll() {
    this.#busy = true;
    const began = performance.now();
    try {
      await this.#look(began);
      this.lastData = Date.now() / 1000;
      this.#tell("live");
    } catch (error) {
      this.#listed = 0;
      this.#tell("lost", trouble(error));
    }
    this.#busy = false;
    const rest = Math.max(PERIOD_MS / 5, PERIOD_MS - (performance.now() - began));
    this.#timer = setTimeout(() => this.resume(), rest);
  }

  async #look(began) {
    const history = this.history;
    const varz = await ask("/varz");
    const before = this.#varz?.server_id === varz.server_id ? this.#varz : null;
    this.#varz = varz;
    this.#tell("varz", { varz, before });
    const parts = [];
    if (history.isDue(Date.parse(varz.now) / 1000)) {
      parts.push(ask(history.path).then((answer) => {
        history.add(answer);
        if (history === this.history) this.#tell("history", history);
      }));
    }
    // The first two follow each other at once: it takes two for a rate.
    const pause = this.#listed < 2 ? PERIOD_MS : varz.connections > MANY_CONNECTIONS ? LISTS_OF_MANY_MS : LISTS_MS;
    // A timer's inaccuracy must not put it off by a second.
    if (began - this.#listsAt >= pause - PERIOD_MS / 2) {
      this.#listsAt = began;
      this.#listed += 1;
      parts.push(this.#lists());
    }
    const failed = (await Promise.allSettled(parts)).find(({ status }) => status === "rejected");
    this.#tell("trouble", failed ? trouble(failed.reason) : "");
  }

  async #lists() {
    const connz = (sort, limit) => ask(`/connz?sort=${sort}&limit=${limit}`);
    const [slow, to, from, subjects] = await Promise.all([
      connz("pending", 64), connz("msgs_to", 256), connz("msgs_from", 256), ask("/subjects?limit=32"),
    ]);
    const busy = new Map([...to.connections, ...from.connections].map((connection) => [connection.cid, connection]));
    this.#tell("lists", { slow, busy: { ...to, connections: [...busy.values()] }, subjects });
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
