// nats.js over WebSocket: argv = path of the library, url. Prints one line of JSON with what it saw.
const [library, url] = process.argv.slice(2);
const { wsconnect, headers } = await import(library);

const client = await wsconnect({ servers: url, reconnect: false });
const seen = [];
const all = client.subscribe("js.>", { callback: (_, message) => seen.push(message.subject) });
client.subscribe("js.*.upper", {
  queue: "workers",
  callback: (_, message) => {
    const reply = headers();
    for (const value of message.headers?.values("Ask") ?? []) reply.append("Seen", value);
    message.respond(message.string().toUpperCase(), { headers: reply });
  },
});
await client.flush();

const ask = headers();
ask.append("Ask", "this");
ask.append("Ask", "and that");
const reply = await client.request("js.a.upper", "hello", { timeout: 5000, headers: ask });
let noResponders = false;
try {
  await client.request("nobody.here", "", { timeout: 5000 });
} catch (error) {
  noResponders = error.isNoResponders();
}
const requests = Array.from({ length: 500 }, (_, n) =>
  client.request("js.many.upper", `n${n}`, { timeout: 10000 }));
const replies = (await Promise.all(requests)).map((message) => message.string());
const large = await client.request("js.large.upper", "x".repeat(1000000), { timeout: 10000 });
await all.drain();
await client.drain();
console.log(JSON.stringify({
  reply: reply.string(),
  headers: reply.headers.values("Seen"),
  noResponders,
  inOrder: replies.every((text, n) => text === `N${n}`),
  large: large.string().length,
  seen: seen.length,
  first: seen[0],
}));
