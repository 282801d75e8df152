// Tells the user if the browser can't run the program, which uses WebAssembly SIMD.

/** A minimal Wasm module with a SIMD instruction. */
const VECTOR = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];

/** Returns whether the browser supports SIMD; if it does not, the page says so. */
globalThis.hasSimd = () => {
  if (WebAssembly.validate(new Uint8Array(VECTOR))) return true;
  const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const main = Object.assign(document.createElement("main"), { className: "unsupported" });
  const notice = make("p", "This browser does not support WebAssembly SIMD, which Statelens needs. Update it, or use Chrome or Edge 91, Firefox 89, Safari 16.4, or later.");
  notice.setAttribute("role", "alert");
  main.append(make("h1", "Statelens"), notice);
  document.body.append(main);
  return false;
};
