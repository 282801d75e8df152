// Files from the desktop: pasted, opened with the installed page, or opened before. The page (offers.rs) calls
// `files.start` when it can open files.

/** Returns a promise for a request to the browser's database. */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** Opens the store of the handles of opened files, which exists only in the browser's database. */
async function store(mode = "readonly") {
  const opening = indexedDB.open("statelens", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("recent", { keyPath: "id", autoIncrement: true });
  return (await done(opening)).transaction("recent", mode).objectStore("recent");
}

const SWITCH = "statelens: remember files";
const MOST = 6;
const can = "showOpenFilePicker" in globalThis && "indexedDB" in globalThis;

function on() {
  try {
    return can && localStorage.getItem(SWITCH) === "on";
  } catch {
    // Storage is forbidden for this site.
    return false;
  }
}

const changed = () => dispatchEvent(new Event("recentfiles"));

async function remember(handles) {
  if (!on() || !handles.length) return;
  const before = await done((await store()).getAll());
  const same = async (entry) =>
    entry.handles.length === handles.length &&
    (await Promise.all(entry.handles.map((handle, at) => handle.isSameEntry(handles[at])))).every(Boolean);
  const drop = [];
  for (const entry of before) if (await same(entry)) drop.push(entry.id);
  const rest = before.filter(({ id }) => !drop.includes(id));
  drop.push(...rest.slice(0, Math.max(0, rest.length + 1 - MOST)).map(({ id }) => id));
  const recent = await store("readwrite");
  for (const id of drop) recent.delete(id);
  await done(recent.add({ handles, when: Date.now() }));
  changed();
}

async function read(handles) {
  const opened = await Promise.all(handles.map((handle) => handle.getFile()));
  // Files open even if they can't be remembered.
  remember(handles).catch(() => {});
  return opened;
}

/** The page's callback that opens files. */
let openInPage;

const files = {
  /** Whether this browser can remember files, and whether the user allowed it. */
  can,
  on,
  async turn(yes) {
    if (yes) localStorage.setItem(SWITCH, "on");
    else {
      localStorage.removeItem(SWITCH);
      (await store("readwrite")).clear();
    }
    changed();
  },
  /** Lists the remembered files, the latest first. */
  async list() {
    if (!on()) return [];
    const entries = await done((await store()).getAll());
    return entries.reverse().map(({ id, handles, when }) => ({
      id,
      name: handles[0].name,
      about: `${handles.length > 1 ? `and ${handles.length - 1} more, ` : ""}${new Date(when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`,
    }));
  },
  async open(id) {
    const { handles } = await done((await store()).get(id));
    for (const handle of handles) {
      if ((await handle.requestPermission({ mode: "read" })) !== "granted") throw new Error("you did not allow it");
    }
    return read(handles);
  },
  /** Shows the browser's file dialog, which returns handles. */
  async choose() {
    const handles = await showOpenFilePicker({ multiple: true }).catch(() => []);
    if (handles.length) openInPage(await read(handles));
  },
  /**
   * Returns a function that lists the files of a dropped folder with their paths. For a page from disk, Chromium offers no
   * other way to read them.
   */
  folder(item) {
    // The item is valid only while the event is handled.
    const handle = item.getAsFileSystemHandle?.().catch(() => {});
    return async () => {
      const found = [];
      const root = await handle;
      const folders = root ? [[root.name, root]] : [];
      for (const [path, folder] of folders) {
        for await (const one of folder.values()) {
          const name = `${path}/${one.name}`;
          if (one.kind === "directory") folders.push([name, one]);
          // Skips files that were removed meanwhile or can't be read.
          else await one.getFile().then((file) => found.push([name, file]), () => {});
        }
      }
      return found;
    };
  },
  /** Returns a picture, given as SVG of a size, as PNG of twice that size. */
  async png(svg, width, height) {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((made) => canvas.toBlob(made, "image/png"));
  },
  /** Copies such a picture. The promise is passed on, since some browsers copy only while a click is handled. */
  copyPng(svg, width, height) {
    return navigator.clipboard.write([new ClipboardItem({ "image/png": files.png(svg, width, height) })]);
  },
  /** Registers the page's callback, which takes an array of files. */
  start(open) {
    openInPage = open;
    // Files opened with the installed page.
    globalThis.launchQueue?.setConsumer(async (launch) => {
      if (launch.files?.length) open(await read(launch.files));
    });
    addEventListener("paste", (event) => {
      const pasted = [...(event.clipboardData?.files ?? [])];
      if (!pasted.length) return;
      event.preventDefault();
      open(pasted);
    });
    addEventListener("drop", async (event) => {
      if (!on()) return;
      // The items are valid only while the event is handled.
      const items = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file");
      const handles = await Promise.all(items.map((item) => item.getAsFileSystemHandle?.()));
      if (handles.every((handle) => handle?.kind === "file")) remember(handles).catch(() => {});
    });
  },
};
globalThis.files = files;
