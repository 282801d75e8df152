// The page in a frame of another page, which offers it files: `?embed=ORIGIN` or `#embed=ORIGIN`. docs/embed.md describes
// the messages. The page (page/embedding.rs) calls the functions of `embed`.

const VERSION = 1;
const named = new URLSearchParams(location.search).get("embed") ?? new URLSearchParams(location.hash.slice(1)).get("embed");
/** The only origin whose messages are accepted; that of the page itself unless the URL names another. */
const allowed = named || origin;
/** Documents without an origin, such as sandboxed ones, can be addressed in no other way. */
const target = allowed === "null" ? "*" : allowed;

/** The port to the embedding page. */
let source;
/** Requests without an answer, by their ids: the worker's port, and its own id of the request. */
const waiting = new Map();
let last = 0;

const say = (type, more) => parent.postMessage({ statelens: VERSION, type, ...more }, target);

function close() {
  source?.close();
  source = undefined;
  waiting.clear();
}

/** Passes an answer of the embedding page to the worker that made the request. */
function answered({ data }) {
  const request = waiting.get(data?.id);
  // It was cancelled.
  if (!request) return;
  waiting.delete(data.id);
  const { port, id } = request;
  if (data.type === "bytes" && data.bytes instanceof ArrayBuffer) port.postMessage({ id, bytes: data.bytes }, [data.bytes]);
  else port.postMessage({ id, message: String(data.message || "the answer holds no bytes") });
}

const isFile = (file) => typeof file?.name === "string" && Number.isSafeInteger(file.size) && file.size >= 0;

const on = named !== null && parent !== globalThis;
// The style sheets leave out the header.
if (on) document.documentElement.dataset.embed = "";

globalThis.embed = {
  on,
  /** Sends a message to the embedding page. */
  say,
  /** Returns a port by which a worker reads the offered files. */
  connect() {
    const { port1: port, port2 } = new MessageChannel();
    port.onmessage = ({ data: { type, id, ...range } }) => {
      if (type === "read") {
        last += 1;
        waiting.set(last, { port, id });
        source?.postMessage({ type, id: last, ...range });
      } else {
        for (const [ours, request] of waiting) {
          if (request.port !== port || request.id !== id) continue;
          waiting.delete(ours);
          source?.postMessage({ type: "cancel", id: ours });
        }
      }
    };
    return port2;
  },
  /** Registers the page's callbacks: for files that are offered, with the index of the one to open and the key to select; and for the end. */
  start(opened, closed) {
    addEventListener("message", ({ data, origin, source: sender, ports }) => {
      if (sender !== parent || typeof data?.statelens !== "number") return;
      if (origin !== allowed) {
        console.warn(`A message from ${origin} is ignored: this page is embedded for ${allowed}.`);
      } else if (data.statelens !== VERSION) {
        say("error", { code: "version", message: `Version ${data.statelens} is not known.`, versions: [VERSION] });
      } else if (data.type === "close") {
        close();
        closed();
      } else if (data.type !== "open" || !Array.isArray(data.files) || !data.files.every(isFile) || !ports[0]) {
        say("error", { code: "message", message: "Expected `open` with files and a port, or `close`." });
      } else {
        close();
        [source] = ports;
        source.onmessage = answered;
        opened(data.files, data.main, data.selected);
      }
    });
    say("ready", { versions: [VERSION] });
  },
};
