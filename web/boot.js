// Starts Statelens: the page in a window, the core in a worker. Both run the same modules, which are compiled once: a
// first one, and one with what is needed later, which is fetched when the page has started.
async function fetched(address, options) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  if (!address.endsWith(".xz")) return answer;
  // `cargo xtask build` packs it; a site that only Trunk built has it as it is.
  const { XzReadableStream } = globalThis["xz-decompress"];
  return new Response(new XzReadableStream(answer.body), { headers: { "Content-Type": "application/wasm" } });
}

async function compile(address, options) {
  try {
    return await WebAssembly.compileStreaming(fetched(address, options));
  } catch {
    // A host that does not name the type application/wasm.
    return WebAssembly.compile(await (await fetched(address, options)).arrayBuffer());
  }
}

async function run({ script, module }) {
  const { default: init } = await import(script);
  return init({ module_or_path: module });
}

/** Puts what is needed later beside what runs, when it has come. */
async function complete(running, later) {
  const [first, module] = await Promise.all([running, later]);
  await WebAssembly.instantiate(module, { first });
  return module;
}

/** Tries to get what is needed later, after which the user is told that it does not come. */
const TRIES = 4;

/** Asks for what is needed later until it is there: the network may be away for a while. */
async function persistent(address) {
  for (let tries = 1; ; tries++) {
    try {
      const module = await compile(address, { priority: "low" });
      tell();
      return module;
    } catch (error) {
      console.warn(error);
      await new Promise((again) => {
        setTimeout(again, Math.min(250 * 2 ** tries, 30_000));
        addEventListener("online", again, { once: true });
        if (tries < TRIES) return;
        const text = `Part of Statelens could not be loaded: ${error.message}. Files open, but statistics, comparing, verifying and converting wait for it. Check the connection; Statelens keeps trying. If it does not come, reload the page: that closes what is open.`;
        tell(text, "Try now", again);
      });
    }
  }
}

/** Tells the user what is wrong with the rest of the program, and has what can be done about it at hand. */
function tell(text, name, act) {
  const before = document.getElementById("incomplete");
  if (before && before.firstChild.textContent === text) {
    before.lastChild.onclick = act;
    return;
  }
  before?.remove();
  if (!text) return;
  const make = (tag, of) => Object.assign(document.createElement(tag), of);
  const news = make("aside", { id: "incomplete", className: "news", role: "alert" });
  news.append(make("span", { textContent: text }), make("button", { className: "btn", textContent: name, onclick: act }));
  document.body.append(news);
}

/** The least program with a vector in it: valid where the browser has SIMD. */
const VECTOR = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];

/** Addresses of the program: of the one without vectors, which is whole, where the browser has none. */
function program({ js, wasm, later, plainJs, plainWasm }) {
  if (plainJs && !WebAssembly.validate(new Uint8Array(VECTOR))) return { js: plainJs, wasm: plainWasm };
  return { js, wasm, later };
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  // Trunk names the built files in this script's own tag, so that no inline script is needed, and `cargo xtask build`
  // the one that is needed later, and those without vectors.
  const { js, wasm, later } = program(document.querySelector("script[data-wasm]").dataset);
  const absolute = (address) => new URL(address, document.baseURI).href;
  // The page hands this to the worker that it starts, and that one to its helpers.
  globalThis.program = {
    script: absolute(js),
    module: await compile(absolute(wasm)),
    follows: Boolean(later),
    worker: import.meta.url,
    options: { type: "module" },
  };
  const running = run(globalThis.program);
  if (later) {
    const rest = complete(running, running.then(() => persistent(absolute(later))));
    rest.catch((error) => {
      console.warn(error);
      const text = "Part of Statelens does not fit the rest: a newer version was put on the server. Reload the page, which closes what is open.";
      running.then(() => tell(text, "Reload", () => location.reload()), () => {});
    });
    /** Hands it to a worker that was started. */
    globalThis.follow = (worker) => rest.then((later) => worker.postMessage({ later }), () => {});
  }
  await running;
} else {
  // What fails beside a message is told as what fails in one is.
  addEventListener("unhandledrejection", (failed) => {
    failed.preventDefault();
    setTimeout(() => {
      throw failed.reason;
    });
  });
  const begin = ({ data }) => {
    globalThis.program = data;
    const running = run(data);
    if (!data.follows) return;
    // A helper is given all at once.
    const rest = data.later ?? new Promise((come) => {
      addEventListener("message", function hear(event) {
        const { later } = event.data;
        if (!later) return;
        // The program has no use for it as a message.
        event.stopImmediatePropagation();
        removeEventListener("message", hear);
        come((data.later = later));
      });
    });
    // What takes it waits for this (web/src/worker/held.rs).
    globalThis.later = complete(running, rest).then(() => delete globalThis.later);
    // Whoever waits is told why it failed; while nobody does, nothing has stopped.
    globalThis.later.catch(() => {});
  };
  addEventListener("message", begin, { once: true });
}
