// Values under the pointer and a closer look at a part of a chart. Without this script every chart is as legible.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_TICKS = 8;
  const NEAR = 24;

  const make = (name, attributes, parent) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return parent.appendChild(element);
  };

  const number = (value) => {
    if (value === null) return "-";
    const size = Math.abs(value);
    if (value !== 0 && size < 1) return String(Number(value.toPrecision(3)));
    const digits = Number.isInteger(value) || size >= 100 ? 0 : 2;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  // The share of which `value` is 1 / (1 - share), with as many nines as there are.
  const share = (value) => `${(100 * (1 - 1 / value)).toFixed(Math.max(1, Math.ceil(Math.log10(value)) - 1))} %`;

  const scale = (axis) => {
    const [to, from] = axis.log ? [Math.log10, (place) => 10 ** place] : [(value) => value, (place) => place];
    const low = to(axis.low), span = to(axis.high) - low;
    return {
      place: (value) => (to(value) - low) / span,
      value: (place) => from(low + place * span),
      text: (value) => (axis.kind === "share" ? share(value) : number(value)),
    };
  };

  // Places between 0 and 1 of round values between two places.
  const ticks = (axis, scaled, first, last) => {
    const low = scaled.value(first), high = scaled.value(last);
    if (axis.log) {
      return Array.from({ length: MOST_TICKS }, (_, n) => {
        const place = first + ((n + 0.5) / MOST_TICKS) * (last - first);
        return [place, scaled.text(scaled.value(place))];
      });
    }
    const least = (high - low) / MOST_TICKS, decade = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((part) => part * decade).find((size) => size >= least);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at += 1) {
      const digits = Math.max(0, -Math.floor(Math.log10(step)));
      found.push([scaled.place(at * step), (at * step).toLocaleString("en-US", { maximumFractionDigits: digits })]);
    }
    return found;
  };

  // The point of a line that belongs to a place: the nearest one, or of steps the last one before.
  const nearest = (line, place) => {
    let low = 0, high = line.places.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (line.places[middle] <= place) low = middle; else high = middle - 1;
    }
    const next = Math.min(low + 1, line.places.length - 1);
    return !line.steps && Math.abs(line.places[next] - place) < Math.abs(line.places[low] - place) ? next : low;
  };

  const activate = (holder) => {
    const data = JSON.parse(holder.dataset.chart);
    const figure = holder.closest("figure"), svg = holder.querySelector("svg");
    const shapes = svg.querySelector(".shapes"), clip = svg.querySelector("clipPath rect");
    const origin = shapes.parentNode.transform.baseVal[0].matrix;
    // The clip leaves room for lines along the edges.
    const plot = { left: origin.e, top: origin.f, width: Number(clip.getAttribute("width")), height: Number(clip.getAttribute("height")) - 8 };
    const x = scale(data.x), y = scale(data.y);
    const axis = svg.querySelector(".ticks.x"), drawnTicks = [...axis.childNodes];
    for (const line of data.lines) line.places = line.x.map(x.place);
    const cells = data.cells && data.cells.counts.map((column) => column.split(" ").map(Number));
    const overlay = make("g", { transform: `translate(${plot.left} ${plot.top})` }, svg);
    let shown = [0, 1], values = null, reset = null, drag = null, at = null;

    const pixel = (place) => ((place - shown[0]) / (shown[1] - shown[0])) * plot.width;

    const clear = () => {
      overlay.replaceChildren();
      values?.remove();
      values = at = null;
    };

    const zoom = (first, last) => {
      shown = [first, last];
      const factor = 1 / (last - first);
      shapes.setAttribute("transform", `translate(${-first * factor * plot.width} 0) scale(${factor} 1)`);
      const whole = first === 0 && last === 1;
      axis.replaceChildren(...(whole ? drawnTicks : []));
      for (const [place, text] of whole ? [] : ticks(data.x, x, first, last)) {
        const left = plot.left + pixel(place);
        make("path", { d: `M${left} ${plot.top}v${plot.height}` }, axis);
        make("text", { x: left, y: plot.top + plot.height + 15 }, axis).textContent = text;
      }
      reset?.remove();
      reset = null;
      if (!whole) {
        reset = figure.appendChild(document.createElement("button"));
        reset.className = "reset";
        reset.type = "button";
        reset.textContent = "Show all";
        reset.addEventListener("click", () => { clear(); zoom(0, 1); });
      }
    };

    const rowsAt = (place, height) => {
      if (cells) {
        const last = (edges, value) => edges.findLastIndex((edge) => edge <= value);
        const { x: times, y: edges, events } = data.cells;
        const column = Math.min(last(times, x.value(place)), cells.length - 1), row = last(edges, y.value(height));
        if (column < 0 || row < 0 || row + 1 >= edges.length) return null;
        const title = `${number(times[column])} to ${number(times[column + 1])} ${data.x.title}`;
        const range = `${number(edges[row])} to ${number(edges[row + 1])} ms`;
        return { title, rows: [[null, range, `${(cells[column][row] || 0).toLocaleString("en-US")} ${events}`]] };
      }
      const rows = [];
      let title = null, closest = Infinity;
      for (const line of data.lines) {
        const found = nearest(line, place), away = Math.abs(pixel(line.places[found]) - pixel(place));
        if (line.steps ? line.places[found] > place : away > NEAR) continue;
        if (away < closest) [closest, title] = [away, line.x[found]];
        rows.push([line.colour, line.label, y.text(line.y[found])]);
        const value = line.y[found];
        if (value !== null && (value > 0 || !data.y.log)) {
          make("circle", { cx: pixel(line.steps ? place : line.places[found]), cy: plot.height * (1 - y.place(value)), r: 3.5, style: `fill:var(--${line.colour})` }, overlay);
        }
      }
      return rows.length ? { title: `${x.text(title)} ${data.x.title}`, rows } : null;
    };

    const show = (place, height) => {
      clear();
      if (place < shown[0] || place > shown[1]) return;
      const found = rowsAt(place, height);
      if (!found) return;
      at = place;
      make("path", { class: "cross", d: `M${pixel(place)} 0v${plot.height}` }, overlay);
      values = figure.appendChild(document.createElement("div"));
      values.className = "values";
      values.setAttribute("role", "status");
      values.append(found.title);
      const table = values.appendChild(document.createElement("table"));
      for (const [colour, label, text] of found.rows) {
        const row = table.insertRow();
        const mark = row.insertCell().appendChild(document.createElement("i"));
        mark.style.background = colour ? `var(--${colour})` : "none";
        row.insertCell().textContent = label;
        row.insertCell().textContent = text;
      }
      const box = figure.getBoundingClientRect(), drawn = svg.getBoundingClientRect();
      const left = drawn.left - box.left + ((plot.left + pixel(place)) / svg.viewBox.baseVal.width) * drawn.width;
      const beside = left + 14 + values.offsetWidth > box.width ? left - 14 - values.offsetWidth : left + 14;
      values.style.left = `${Math.max(0, beside)}px`;
      values.style.top = `${drawn.top - box.top + 28}px`;
    };

    // Where the pointer is: a place across as the axis has it, and one upwards.
    const placeOf = (event) => {
      const drawn = svg.getBoundingClientRect(), unit = svg.viewBox.baseVal.width / drawn.width;
      const across = ((event.clientX - drawn.left) * unit - plot.left) / plot.width;
      const up = 1 - ((event.clientY - drawn.top) * unit - plot.top) / plot.height;
      return [shown[0] + Math.min(1, Math.max(0, across)) * (shown[1] - shown[0]), up];
    };

    svg.addEventListener("pointermove", (event) => {
      const [place, up] = placeOf(event);
      if (drag === null || event.pointerType === "touch") return show(place, up);
      clear();
      const [from, to] = [pixel(drag), pixel(place)].sort((one, other) => one - other);
      make("rect", { class: "chosen", x: from, y: 0, width: to - from, height: plot.height }, overlay);
    });
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") return show(...placeOf(event));
      if (event.button !== 0) return;
      drag = placeOf(event)[0];
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointerup", (event) => {
      if (drag === null) return;
      const [first, last] = [drag, placeOf(event)[0]].sort((one, other) => one - other);
      drag = null;
      clear();
      if (Math.abs(pixel(last) - pixel(first)) > 5) zoom(first, last);
    });
    svg.addEventListener("pointerleave", () => { if (drag === null) clear(); });
    svg.addEventListener("pointercancel", () => { drag = null; clear(); });
    svg.addEventListener("dblclick", () => { clear(); zoom(0, 1); });
    holder.addEventListener("blur", clear);
    holder.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") { clear(); zoom(0, 1); }
      if (!step || !data.lines.length) return;
      const places = data.lines[0].places;
      const next = at === null ? nearest(data.lines[0], (shown[0] + shown[1]) / 2) : nearest(data.lines[0], at) + step;
      show(places[Math.min(places.length - 1, Math.max(0, next))], 0);
      event.preventDefault();
    });
    addEventListener("beforeprint", () => { clear(); zoom(0, 1); });
  };

  document.querySelectorAll("[data-chart]").forEach(activate);
})();
