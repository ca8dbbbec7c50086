// A chart of lines or stacked areas over time, with one crosshair for all charts of the page.

const MARGIN = { top: 8, right: 10, bottom: 22, left: 66 };
const HEIGHT = 176;
const COLOURS = 8;
const TIME_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600];

/** The moment that all charts show the values of; null for the latest. */
const crosshair = Object.assign(new EventTarget(), {
  time: null,
  move(time) {
    this.time = time;
    this.dispatchEvent(new Event("move"));
  },
});

/** The index of the time nearest to `time`. */
function nearest(times, time) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

/** Ranges [first, last] without a gap, which is a missing value or a missing point. */
function unbroken(times, values, step) {
  const ranges = [];
  let first = null;
  for (let i = 0; i < times.length; i += 1) {
    if (first !== null && (values[i] === null || times[i] - times[i - 1] > 1.5 * step)) {
      ranges.push([first, i - 1]);
      first = null;
    }
    if (first === null && values[i] !== null) first = i;
  }
  if (first !== null) ranges.push([first, times.length - 1]);
  return ranges;
}

/** Each series on top of those before. */
function pile(series) {
  let below = series.length ? series[0].values.map(() => 0) : [];
  return series.map(({ values }) => {
    const bottom = below;
    below = values.map((value, i) => (value === null ? null : bottom[i] + value));
    return { bottom, top: below };
  });
}

class Chart {
  #data = { times: [], series: [], step: 1 };
  #x = () => 0;
  #y = () => 0;
  #tops = [];
  #pointer = svg("g", { class: "pointer" });

  /** `unit` is one of UNITS. */
  constructor({ title, unit, stacked = false }) {
    Object.assign(this, { unit, stacked });
    this.plot = svg("svg", { role: "slider", tabindex: 0, "aria-label": title, height: HEIGHT });
    this.moment = html("span", { class: "moment" });
    this.legend = html("ul", { class: "legend" });
    const caption = html("figcaption", {}, html("h3", {}, title), this.moment);
    this.figure = html("figure", { class: "card chart" }, caption, this.plot, this.legend);
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerdown", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => crosshair.move(null));
    this.plot.addEventListener("blur", () => crosshair.move(null));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    crosshair.addEventListener("move", () => this.#mark());
    new ResizeObserver(() => this.#draw()).observe(this.plot);
  }

  /** `series`: a list of {name, values}; a value, or null, for each of `times`, unix seconds that are `step` apart. */
  show(times, series, step) {
    this.#data = { times, series, step };
    this.#draw();
  }

  #draw() {
    const { times, series, step } = this.#data;
    const width = Math.max(this.plot.clientWidth, 120);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#entries();
    if (!times.length) {
      const text = `No point yet: there is one every ${step} s`;
      this.plot.replaceChildren(svg("text", { x: width / 2, y: HEIGHT / 2, class: "middle" }, text));
      for (const name of ["valuemin", "valuemax", "valuenow", "valuetext"]) this.plot.removeAttribute(`aria-${name}`);
      return;
    }
    const piled = this.stacked ? pile(series) : [];
    this.#tops = this.stacked ? piled.map(({ top }) => top) : series.map(({ values }) => values);
    const axes = this.#scale(width);
    const x = (i) => this.#x(times[i]).toFixed(1);
    const line = (values, from, to) => {
      const points = [];
      for (let i = from; i <= to; i += 1) points.push(`${x(i)},${this.#y(values[i]).toFixed(1)}`);
      return points;
    };
    const shapes = this.#tops.map((tops, index) => {
      const ranges = unbroken(times, tops, step);
      const outline = ranges.map(([from, to]) => `M${line(tops, from, to).join("L")}h0`).join("");
      const stroke = svg("path", { class: `line c${index % COLOURS}`, d: outline });
      if (!this.stacked) return [stroke];
      const area = ([from, to]) =>
        `M${line(tops, from, to).join("L")}L${line(piled[index].bottom, from, to).reverse().join("L")}Z`;
      return [svg("path", { class: `area c${index % COLOURS}`, d: ranges.map(area).join("") }), stroke];
    });
    // The lowest comes last, so that what is empty above it does not hide its outline.
    this.plot.replaceChildren(...axes, ...(this.stacked ? shapes.reverse() : shapes).flat(), this.#pointer);
    this.#mark();
  }

  /** Fits the axes to the values; their lines and labels. */
  #scale(width) {
    const { times, step } = this.#data;
    const last = times.at(-1);
    // Young histories do not begin as two points that fill the chart.
    const first = Math.min(times[0], last - 60 * step);
    const most = this.#tops.flat().reduce((high, value) => Math.max(high, value ?? 0), this.unit.least ?? 1);
    const rise = axisStep(most, this.unit);
    const ceiling = Math.ceil(most / rise) * rise;
    const [right, bottom] = [width - MARGIN.right, HEIGHT - MARGIN.bottom];
    this.#x = (time) => MARGIN.left + ((time - first) / (last - first)) * (right - MARGIN.left);
    this.#y = (value) => bottom - (value / ceiling) * (bottom - MARGIN.top);
    const marks = [];
    for (let value = 0; value <= ceiling * 1.001; value += rise) {
      const y = this.#y(value).toFixed(1);
      marks.push(svg("path", { class: value ? "grid" : "grid base", d: `M${MARGIN.left} ${y}H${right}` }));
      marks.push(svg("text", { x: MARGIN.left - 8, y, class: "value" }, this.unit.label(value)));
    }
    const wanted = (last - first) / Math.max(2, Math.floor((right - MARGIN.left) / 90));
    const stride = TIME_STEPS_S.find((seconds) => seconds >= wanted) ?? TIME_STEPS_S.at(-1);
    const zone = new Date(last * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((first - zone) / stride) * stride + zone; time <= last; time += stride) {
      const x = this.#x(time);
      if (x > right - 16) break;
      const text = stride < 60 ? clock(time) : clock(time).slice(0, 5);
      marks.push(svg("text", { x: x.toFixed(1), y: HEIGHT - 6, class: "middle" }, text));
    }
    return marks;
  }

  /** Makes the legend's entries where the series are not those of before. */
  #entries() {
    const names = this.#data.series.map(({ name }) => name).concat(this.stacked ? ["Total"] : []);
    if (this.#data.times.length && names.join("\n") === this.names) return;
    this.names = names.join("\n");
    const entry = (name, index) => {
      const colour = index < this.#data.series.length ? `c${index % COLOURS}` : "none";
      return html("li", {}, html("i", { class: colour }), name, html("b"));
    };
    this.legend.replaceChildren(...names.map(entry));
  }

  /** Shows the values under the crosshair, or the latest. */
  #mark() {
    const { times, series, step } = this.#data;
    if (!times.length) return;
    const at = crosshair.time === null ? times.length - 1 : nearest(times, crosshair.time);
    const shown = crosshair.time !== null && Math.abs(times[at] - crosshair.time) <= step;
    const values = series.map((one) => one.values[at]);
    if (this.stacked) values.push(this.#tops.at(-1)?.[at] ?? null);
    [...this.legend.children].forEach((entry, i) => setText(entry.lastChild, this.unit.text(values[i])));
    setText(this.moment, shown ? clock(times[at]) : "");
    const x = this.#x(times[at]).toFixed(1);
    const dot = (tops, i) => svg("circle", { class: `c${i % COLOURS}`, cx: x, cy: this.#y(tops[at]).toFixed(1), r: 3 });
    const dots = this.#tops.flatMap((tops, i) => (tops[at] === null ? [] : [dot(tops, i)]));
    const line = svg("path", { d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` });
    this.#pointer.replaceChildren(...(shown ? [line, ...dots] : []));
    const entries = [...this.legend.children].map(({ childNodes: [, name, value] }) => [name, value]);
    const spoken = entries.map(([name, value]) => `${name.data} ${value.textContent}`);
    const valuetext = `${clock(times[at])}: ${spoken.join(", ")}`;
    const slider = { valuemin: 0, valuemax: times.length - 1, valuenow: at, valuetext };
    for (const [name, value] of Object.entries(slider)) this.plot.setAttribute(`aria-${name}`, value);
  }

  #point(event) {
    const { times } = this.#data;
    if (!times.length) return;
    const [left, right] = [this.#x(times[0]), this.#x(times.at(-1))];
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const share = right > left ? Math.min(1, Math.max(0, (x - left) / (right - left))) : 1;
    crosshair.move(times[nearest(times, times[0] + share * (times.at(-1) - times[0]))]);
  }

  #key(event) {
    const { times } = this.#data;
    const at = crosshair.time === null ? times.length - 1 : nearest(times, crosshair.time);
    const stride = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: 0, End: times.length - 1 };
    if (event.key === "Escape") crosshair.move(null);
    else if (!(event.key in moves) || !times.length) return;
    else crosshair.move(times[Math.min(times.length - 1, Math.max(0, moves[event.key]))]);
    event.preventDefault();
  }
}
