// Caches the site for offline use, as one complete version. If a file does not match its hash, because the host is being
// updated, the installation fails and the old version stays.

// The hashes of the site's files, and the name of the version. `cargo xtask` fills them in. In a site that Trunk built they
// are empty, and nothing is cached.
const FILES = {};
const VERSION = "";

const { scope } = registration;
const PREFIX = `statelens ${scope} `;
const NAME = PREFIX + VERSION;

/** Returns the URL of a file; that of the page is its folder. */
const address = (file) => new URL(file === "index.html" ? "./" : file, scope).href;

async function fill() {
  const cache = await caches.open(NAME);
  await Promise.all(
    Object.entries(FILES).map(async ([file, integrity]) => {
      // Revalidates the browser's cache, so that unchanged files are not downloaded again.
      const response = await fetch(address(file), { cache: "no-cache", integrity });
      if (!response.ok) throw new Error(`${file}: ${response.status}`);
      await cache.put(address(file), response);
    }),
  );
}

async function take() {
  await clients.claim();
  // Another window may still run the old version and start its worker, so that version stays for now.
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  if (windows.length > 1) return;
  const names = await caches.keys();
  const others = names.filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(others.map((name) => caches.delete(name)));
}

async function find(request, url) {
  const options = { ignoreVary: true };
  const cache = await caches.open(NAME);
  return (await cache.match(url, options)) ?? (await caches.match(url, options)) ?? fetch(request);
}

if (VERSION) {
  addEventListener("install", (event) => event.waitUntil(fill()));
  addEventListener("activate", (event) => event.waitUntil(take()));
  // Sent when the user agrees; see web/offline.js.
  addEventListener("message", ({ data }) => data === "take over" && skipWaiting());
  addEventListener("fetch", (event) => {
    const { request } = event;
    const [url] = request.url.split(/[?#]/);
    if (request.method !== "GET" || !url.startsWith(scope) || request.headers.has("range")) return;
    const page = request.mode === "navigate" && (url === scope || url === `${scope}index.html`);
    // Names that contain a hash may belong to the old version.
    const cached = page || url.slice(scope.length) in FILES || /-[0-9a-f]{16}[._]/.test(url);
    if (cached) event.respondWith(find(request, page ? scope : url));
  });
}
