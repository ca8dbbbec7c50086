// Connections that are looked up, and one of them with all that the broker knows of it.

const MOST_SUBSCRIPTIONS = 1000;

/** Facts whose numbers are names. */
const IDENTIFIERS = new Set(["cid", "port", "shard"]);

/** The id that is meant by a text, as "3150", also where its digits are in groups; null where it is none. */
function idIn(text) {
  const digits = /^\d{1,3}([,\s]\d{3})+$/.test(text) ? text.replace(/\D/g, "") : text;
  // The broker's ids have 64 bits.
  return /^\d{1,19}$/.test(digits) ? digits : null;
}

/** The connection of this id or, where there is none, those of exactly this name. */
async function findConnections(wanted) {
  const id = idIn(wanted);
  const found = id === null ? null : await ask(`/connz?cid=${id}`);
  return found?.connections.length ? found : ask(`/connz?limit=64&name=${encodeURIComponent(wanted)}`);
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
    const { subscriptions_list: subjects = [], subscriptions_left_out: leftOut = 0, ...facts } = connection;
    const pairs = Object.entries(facts).flatMap(([name, value]) => [
      html("dt", {}, words(name)),
      html("dd", {}, known(value) && !IDENTIFIERS.has(name) ? UNITS.exact.text(value) : plain(value || NOTHING)),
    ]);
    this.facts.replaceChildren(...pairs);
    const shown = subjects.slice(0, MOST_SUBSCRIPTIONS);
    const all = subjects.length + leftOut;
    const more = shown.length < all ? `; ${UNITS.exact.text(shown.length)} of them are shown` : "";
    setText(this.note, `Subscribed to ${counted(all, "subject")}${more}.`);
    this.list.replaceChildren(...shown.map((subject) => html("li", {}, plain(subject))));
  }
}
