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
}

/** Asks for what is needed later until it is there: the network may be away for a while. */
async function persistent(address) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 30_000)) {
    try {
      return await compile(address, { priority: "low" });
    } catch (error) {
      console.warn(error);
      await new Promise((done) => setTimeout(done, pause));
    }
  }
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  // Trunk names the built files in this script's own tag, so that no inline script is needed, and `cargo xtask build`
  // the one that is needed later.
  const { js, wasm, later } = document.querySelector("script[data-wasm]").dataset;
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
    const rest = running.then(() => persistent(absolute(later)));
    /** Hands it to a worker that was started. */
    globalThis.follow = async (worker) => worker.postMessage({ later: await rest });
    complete(running, rest);
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
