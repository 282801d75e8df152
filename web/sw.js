// Keeps the site for when there is no network. What it keeps is one version, whole: a file that is not the one it
// names (a host that is being updated) makes it start over, and the version before stays.

// The site's files by their hashes, and a name for all of them: `cargo xtask` fills them in. In a site that Trunk built
// they are empty, and nothing is kept.
const FILES = {};
const VERSION = "";

const { scope } = registration;
const PREFIX = `statelens ${scope} `;
const NAME = PREFIX + VERSION;

/** The address under which a file is kept; the page itself is where its folder is. */
const address = (file) => new URL(file === "index.html" ? "./" : file, scope).href;

async function fill() {
  const cache = await caches.open(NAME);
  await Promise.all(
    Object.entries(FILES).map(async ([file, integrity]) => {
      // Asks the host whether what the browser has is still right: no second download of what is.
      const answer = await fetch(address(file), { cache: "no-cache", integrity });
      if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
      await cache.put(address(file), answer);
    }),
  );
}

async function take() {
  await clients.claim();
  // Another window may still show the version before, and start another worker of it: then that stays for now.
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  if (windows.length > 1) return;
  const names = await caches.keys();
  const others = names.filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(others.map((name) => caches.delete(name)));
}

async function find(request, kept) {
  const options = { ignoreVary: true };
  const cache = await caches.open(NAME);
  return (await cache.match(kept, options)) ?? (await caches.match(kept, options)) ?? fetch(request);
}

if (VERSION) {
  addEventListener("install", (event) => event.waitUntil(fill()));
  addEventListener("activate", (event) => event.waitUntil(take()));
  // Only when its user says so; see web/offline.js.
  addEventListener("message", ({ data }) => data === "take over" && skipWaiting());
  addEventListener("fetch", (event) => {
    const { request } = event;
    const [asked] = request.url.split(/[?#]/);
    if (request.method !== "GET" || !asked.startsWith(scope) || request.headers.has("range")) return;
    const page = request.mode === "navigate" && (asked === scope || asked === `${scope}index.html`);
    // Names with a hash in them may be those of the version before.
    const ours = page || asked.slice(scope.length) in FILES || /-[0-9a-f]{16}[._]/.test(asked);
    if (ours) event.respondWith(find(request, page ? scope : asked));
  });
}
