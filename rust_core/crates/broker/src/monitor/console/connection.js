// Connections that are looked up, and one of them with all that the broker knows of it.

const MOST_SUBSCRIPTIONS = 1000;

/** The connections of this id or, where it is none, of exactly this name. */
function findConnections(wanted) {
  return ask(/^\d+$/.test(wanted) ? `/connz?cid=${wanted}` : `/connz?limit=64&name=${encodeURIComponent(wanted)}`);
}

class ConnectionDialog {
  #cid = null;

  constructor(dialog) {
    this.dialog = dialog;
    this.title = dialog.querySelector("h2");
    this.facts = dialog.querySelector("dl");
    this.note = dialog.querySelector("p");
    this.list = dialog.querySelector("ul");
    dialog.addEventListener("close", () => (this.#cid = null));
  }

  open({ cid }) {
    this.#cid = cid;
    setText(this.title, `Connection ${cid}`);
    this.facts.replaceChildren();
    this.list.replaceChildren();
    setText(this.note, "");
    this.dialog.showModal();
    this.refresh();
  }

  /** Asks again for the connection that is shown, if one is. */
  async refresh() {
    const cid = this.#cid;
    if (cid === null) return;
    try {
      const { connections } = await ask(`/connz?cid=${cid}&subs=1`);
      if (cid === this.#cid) this.#show(connections[0]);
    } catch (error) {
      if (cid === this.#cid) setText(this.note, trouble(error));
    }
  }

  #show(connection) {
    if (!connection) {
      setText(this.note, "This connection is closed. These were its last values.");
      return;
    }
    const { subscriptions_list: subjects = [], ...facts } = connection;
    const pairs = Object.entries(facts).flatMap(([name, value]) => [
      html("dt", {}, words(name)),
      html("dd", {}, known(value) && name !== "port" ? UNITS.exact.text(value) : plain(value || NOTHING)),
    ]);
    this.facts.replaceChildren(...pairs);
    const most = UNITS.exact.text(MOST_SUBSCRIPTIONS);
    const more = subjects.length > MOST_SUBSCRIPTIONS ? `; the first ${most} are shown` : "";
    setText(this.note, `Subscribed to ${UNITS.exact.text(subjects.length)} subjects${more}.`);
    const shown = subjects.slice(0, MOST_SUBSCRIPTIONS);
    this.list.replaceChildren(...shown.map((subject) => html("li", {}, plain(subject))));
  }
}
