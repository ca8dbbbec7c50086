// Puts the page together.

const feed = new Feed(Number(choices.read("resolution")) in POINTS ? Number(choices.read("resolution")) : 1);
const connectionDialog = new ConnectionDialog(byId("connection"));
const openConnection = (row) => connectionDialog.open(row);

const page = {
  status: new Status(),
  tiles: new Tiles(),
  charts: CHARTS.map((chart) => ({ ...chart, chart: new Chart(chart) })),
  found: connectionTable("Found", "No connection has exactly this name or id.", "Id", openConnection),
  slow: connectionTable("Slowest connections", "No connection has anything pending.", "Pending", openConnection),
  busy: connectionTable("Busiest connections", "There are no connections.", "Messages", openConnection),
  subjects: subjectTable(),
  dropped: new ReasonTable("Dropped messages", "No message was dropped.", (varz) => varz.conservation?.dropped),
  closed: new ReasonTable("Closed connections", "No connection was closed.", (varz) => varz.closed),
  transports: new TransportTable(),
  shards: new ShardTable(),
  values: new ValueTable(byId("filter")),
};
const rates = new ConnectionRates();

function layOut() {
  byId("overview").append(page.tiles.list);
  byId("charts").append(...page.charts.map(({ chart }) => chart.figure));
  page.found.section.hidden = true;
  byId("connections").append(page.found.section, page.busy.section, page.slow.section);
  byId("reasons").append(page.subjects.section, page.dropped.table.section, page.closed.table.section);
  byId("shards").append(page.transports.table.section, page.shards.table.section);
  byId("values").append(page.values.table.section);
}

feed.addEventListener("varz", ({ detail: look }) => {
  page.status.show(look);
  for (const part of [page.tiles, page.dropped, page.closed, page.transports, page.shards]) part.show(look);
  if (byId("values").open) page.values.show(look);
});

feed.addEventListener("history", ({ detail: history }) => {
  for (const { chart, series } of page.charts) chart.show(history.times, series(history), history.step);
});

feed.addEventListener("lists", ({ detail: { slow, busy, subjects } }) => {
  // Most of the slow ones are among the busy ones, whose earlier counts are known.
  const all = new Map([...busy.connections, ...slow.connections].map((row) => [row.cid, row]));
  const rated = rates.rate({ ...slow, connections: [...all.values()] });
  page.slow.show(rated.filter(({ pending_bytes: bytes }) => bytes > 0));
  page.busy.show(rated, `of ${UNITS.exact.text(slow.total)}`);
  const average = `, average of the last ${Math.max(1, Math.round(subjects.seconds))} s`;
  page.subjects.show(subjects.subjects, `sampled, one of ${subjects.one_in}`, average);
  connectionDialog.refresh();
});

feed.addEventListener("live", () => page.status.live());
feed.addEventListener("paused", () => page.status.paused());
feed.addEventListener("lost", ({ detail: why }) => page.status.lost(why, feed.lastData));
feed.addEventListener("trouble", ({ detail: message }) => setText(byId("trouble"), message));

for (const radio of document.querySelectorAll("input[name=resolution]")) {
  radio.checked = Number(radio.value) === feed.history.step;
  radio.addEventListener("change", () => {
    choices.write("resolution", radio.value);
    crosshair.move(null);
    feed.choose(Number(radio.value));
  });
}

byId("pause").addEventListener("click", ({ currentTarget: button }) => {
  const paused = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", paused);
  feed.freeze(paused);
});

byId("find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const wanted = byId("wanted").value.trim();
  page.found.section.hidden = !wanted;
  if (!wanted) return;
  try {
    const found = await findConnections(wanted);
    page.found.show(found.connections, `${UNITS.exact.text(found.total)} by “${wanted}”`);
  } catch (error) {
    page.found.show([], trouble(error));
  }
});

/** As the system, or the other way round. */
function paint(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
paint(choices.read("theme"));
byId("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
  const theme = dark ? "light" : "dark";
  choices.write("theme", theme);
  paint(theme);
});

/** Saves the history as it is shown, one line for each point. */
byId("save").addEventListener("click", () => {
  const { times, columns, step } = feed.history;
  const values = (i) => Object.values(columns).map((column) => column[i]);
  const lines = times.map((time, i) => [new Date(time * 1000).toISOString(), ...values(i)]);
  const text = [["time", ...Object.keys(columns)], ...lines].map((line) => `${line.join(",")}\n`);
  const href = URL.createObjectURL(new Blob(text, { type: "text/csv" }));
  const link = html("a", { download: `subjectbus-${step}s.csv`, href });
  link.click();
  URL.revokeObjectURL(link.href);
});

layOut();
feed.resume();
