// Memory of the browser and of all that it started. Reads /proc, so that only Linux tells.

import { readFileSync, readdirSync } from "node:fs";

const MARK = `--statelens-memory-${process.pid}`;

/** A switch for `launch`, which names this browser's processes among all that run. */
export function marked() {
  return MARK;
}

/** Anonymous and shared memory of the marked browser, in MB; 0 where there is no /proc. */
export function memory() {
  if (process.platform !== "linux") return 0;
  const parents = new Map();
  const roots = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      parents.set(pid, { parent: /PPid:\s+(\d+)/.exec(status)[1], status });
      if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(MARK)) roots.push(pid);
    } catch {
      // It ended while we looked.
    }
  }
  const ours = (pid) => {
    for (let at = pid; parents.has(at); at = parents.get(at).parent) if (roots.includes(at)) return true;
    return false;
  };
  let kilobytes = 0;
  for (const [pid, { status }] of parents) {
    if (!ours(pid)) continue;
    for (const name of ["RssAnon", "RssShmem"]) kilobytes += Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0);
  }
  return kilobytes / 1024;
}
