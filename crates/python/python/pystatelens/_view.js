// The widget of `pystatelens.view` in the browser: a frame with the page, and the page's requests for bytes, which the
// kernel answers. The messages between this script and the frame are those of docs/embed.md.

const VERSION = 1;
/** Requests to the kernel at a time; the others wait here, where they can be cancelled. */
const MOST = 4;

/** Asks the kernel. Each request has an id that no other view of the widget uses. */
function kernel(model) {
  const name = Math.random().toString(36).slice(2);
  const pending = new Map();
  const queue = [];
  let last = 0;
  const next = () => {
    while (queue.length && pending.size < MOST) {
      const { id, request, answer } = queue.shift();
      pending.set(id, answer);
      model.send({ ...request, id });
    }
  };
  const receive = (message, buffers) => {
    const answer = pending.get(message?.id);
    if (!answer) return;
    pending.delete(message.id);
    answer(message, buffers?.[0]);
    next();
  };
  model.on("msg:custom", receive);
  return {
    /** Calls `answer(message, bytes)` when the kernel has answered; returns a function that cancels it. */
    ask(request, answer) {
      const id = `${name}-${(last += 1)}`;
      queue.push({ id, request, answer });
      next();
      return () => {
        const at = queue.findIndex((one) => one.id === id);
        if (at >= 0) queue.splice(at, 1);
        // The kernel answers nevertheless; the answer is dropped, and makes room for the next request.
        else if (pending.has(id)) pending.set(id, () => {});
      };
    },
    close() {
      model.off("msg:custom", receive);
      queue.length = 0;
      pending.clear();
    },
  };
}

/** Returns the bytes in a buffer of their own, which can be transferred. */
const alone = (bytes) => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);

/** Answers the requests of the frame that arrive at a port. */
function serve(port, ask) {
  const cancels = new Map();
  port.onmessage = ({ data: { type, id, file, offset, length } }) => {
    const cancel = cancels.get(id);
    if (type === "cancel") {
      cancels.delete(id);
      cancel?.();
      return;
    }
    const answer = (message, bytes) => {
      cancels.delete(id);
      if (message.type !== "bytes") return port.postMessage({ type: "error", id, message: message.message });
      const buffer = alone(bytes);
      port.postMessage({ type: "bytes", id, bytes: buffer }, [buffer]);
    };
    cancels.set(id, ask({ type: "read", file, offset, length }, answer));
  };
}

export default {
  render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.title = "Statelens";
    frame.allow = "clipboard-write";
    frame.style.cssText = `display: block; width: 100%; height: ${model.get("_height")}px; border: 0`;
    el.append(frame);
    const { ask, close } = kernel(model);
    const hosted = model.get("_address");
    /** The frame's origin: without a hosted page, that of this page. */
    const from = hosted ? new URL(hosted).origin : origin;
    let port;
    let address;
    let closed = false;
    const listen = ({ source, origin: sender, data }) => {
      if (source !== frame.contentWindow || sender !== from || data?.statelens !== VERSION) return;
      if (data.type === "ready") {
        // Also after the notebook has moved the frame, which loads it again.
        port?.close();
        const channel = new MessageChannel();
        port = channel.port1;
        serve(port, ask);
        const offer = { files: model.get("_files"), main: model.get("_main"), selected: model.get("selected") };
        // A document without an origin can be addressed in no other way.
        const target = from === "null" ? "*" : from;
        frame.contentWindow.postMessage({ statelens: VERSION, type: "open", ...offer }, target, [channel.port2]);
      } else if (data.type === "selected") {
        model.set("selected", data.key);
        model.save_changes();
      }
    };
    addEventListener("message", listen);
    const embed = `embed=${encodeURIComponent(origin)}`;
    if (hosted) frame.src = `${hosted}?${embed}`;
    else ask({ type: "page" }, async (_, bytes) => {
      const page = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const text = await new Response(page).blob();
      if (closed) return;
      address = URL.createObjectURL(new Blob([text], { type: "text/html" }));
      frame.src = `${address}#${embed}`;
    });
    return () => {
      closed = true;
      removeEventListener("message", listen);
      port?.close();
      close();
      frame.remove();
      if (address) URL.revokeObjectURL(address);
    };
  },
};
