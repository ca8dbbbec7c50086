// Elements. Children that are strings become text: nothing that the broker says is ever markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
const byId = (id) => document.getElementById(id);

/** Sets a node's text where it differs, so that selections and screen readers are left in peace. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Text of others with what could disguise it made visible: controls, and marks that turn its direction round. */
const plain = (text) =>
  String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (hidden) => `\\u{${hidden.codePointAt(0).toString(16)}}`);

/** What this browser remembers of the operator's choices; it may refuse to. */
const choices = {
  read(name) {
    try {
      return localStorage.getItem(`subjectbus.${name}`);
    } catch {
      return null;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(`subjectbus.${name}`, value);
    } catch {
      // The choice holds until the page is left.
    }
  },
};
