// A table that is sorted by the buttons in its head and keeps its rows from one update to the next.

const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Numbers by size, everything else by its letters; what is not there comes last. */
function compare(a, b, descending) {
  const [missing, other] = [a === null || a === undefined, b === null || b === undefined];
  if (missing || other) return missing - other;
  const numbers = typeof a === "number" && typeof b === "number";
  const order = numbers ? a - b : COLLATOR.compare(a, b);
  return descending ? -order : order;
}

class Table {
  #rows = [];
  #shown = new Map();

  /**
   * `columns`: {name, value: row => number or text, unit: one of UNITS for a number, order: what to sort by if not the
   * value, share: row => 0..1, drawn as a bar, open: what a button in the cell does with the row}.
   * `key`: row => what tells it from others.
   * `sort`: index of the column sorted by at first. `most`: rows shown. `empty`: said when there are none.
   */
  constructor({ title, columns, key, sort = 0, descending = true, most = Infinity, empty = "None." }) {
    Object.assign(this, { title, columns, key, sort, descending, most });
    this.heads = columns.map((column, index) => this.#head(column, index));
    this.body = html("tbody");
    this.note = html("span", { class: "moment" });
    this.empty = html("p", { class: "empty" }, empty);
    this.heading = html("h3", {}, title);
    const caption = html("caption", {}, this.heading, this.note);
    this.table = html("table", {}, caption, html("thead", {}, html("tr", {}, ...this.heads)), this.body);
    // A region that scrolls sideways has to be reached by keyboard.
    const scroller = html("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": title }, this.table);
    this.section = html("div", { class: "card" }, scroller, this.empty);
    this.#markHeads();
  }

  /** `more`: what the heading says beyond the title; `note`: what is said beside it, in smaller print. */
  show(rows, note = "", more = "") {
    this.#rows = rows;
    setText(this.heading, `${this.title}${more}`);
    setText(this.note, note);
    this.#draw();
  }

  #head({ name, unit }, index) {
    const button = html("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      // A first click shows the most of a number and the first of a name.
      this.descending = this.sort === index ? !this.descending : Boolean(unit);
      this.sort = index;
      this.#markHeads();
      this.#draw();
    });
    return html("th", { scope: "col", class: unit ? "number" : "text" }, button);
  }

  #markHeads() {
    const order = this.descending ? "descending" : "ascending";
    this.heads.forEach((head, index) => {
      if (index === this.sort) head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    });
  }

  #draw() {
    const { value, order = value } = this.columns[this.sort];
    const rows = this.#rows.toSorted((a, b) => compare(order(a), order(b), this.descending)).slice(0, this.most);
    const focused = document.activeElement;
    const shown = new Map();
    for (const row of rows) {
      const key = this.key(row);
      shown.set(key, this.#line(this.#shown.get(key) ?? this.#newLine(), row));
    }
    this.#shown = shown;
    const lines = [...shown.values()];
    if (lines.length !== this.body.children.length || lines.some((line, i) => line !== this.body.children[i])) {
      this.body.replaceChildren(...lines);
      if (focused?.isConnected) focused.focus({ preventScroll: true });
    }
    this.empty.hidden = rows.length > 0;
    this.table.classList.toggle("bare", rows.length === 0);
  }

  #newLine() {
    const line = html("tr");
    for (const { unit, open, share } of this.columns) {
      const content = open ? html("button", { type: "button", class: "link" }) : html("span");
      if (open) content.addEventListener("click", () => open(line.row));
      const bar = share ? [html("i", { class: "bar" })] : [];
      line.append(html("td", { class: unit ? "number" : "text" }, ...bar, content));
    }
    return line;
  }

  #line(line, row) {
    line.row = row;
    this.columns.forEach(({ value, unit, share }, index) => {
      const cell = line.children[index];
      const content = value(row);
      const text = unit ? unit.text(content) : plain(content ?? "");
      setText(cell.lastChild, text || NOTHING);
      if (!unit) cell.title = text;
      if (share) cell.firstChild.style.inlineSize = `${Math.max(0, Math.min(1, share(row))) * 4}rem`;
    });
    return line;
  }
}
