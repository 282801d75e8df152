// Shows the user if the program can't run, and whether the browser has WebAssembly SIMD, which it uses.

/** A minimal Wasm module with a SIMD instruction. */
const VECTOR = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];

/** Shows a message instead of the page. */
globalThis.showFailure = (text) => {
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const main = make("main", { className: "unsupported" });
  const reload = make("button", { className: "btn", textContent: "Reload", onclick: () => location.reload() });
  const notice = make("p", { textContent: text });
  notice.setAttribute("role", "alert");
  main.append(make("h1", { textContent: "Statelens" }), notice, reload);
  document.body.textContent = "";
  document.body.append(main);
};

/** Returns whether the browser supports SIMD; if it does not, the page says so. */
globalThis.hasSimd = () => {
  if (globalThis.WebAssembly && WebAssembly.validate(new Uint8Array(VECTOR))) return true;
  globalThis.showFailure("This browser does not support WebAssembly SIMD, which Statelens needs, or its settings turn WebAssembly off. Update it, or use Chrome or Edge 91, Firefox 89, Safari 16.4, or later.");
  return false;
};
