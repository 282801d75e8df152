// A server that responds as the Hugging Face Hub does, and the storage that it redirects to. The browser resolves both
// as the real ones: `launchHub` directs their names to it.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:https";
import { launch } from "./harness.mjs";

/** The commit of every revision that exists. */
export const COMMIT = "0123456789abcdef0123456789abcdef01234567";

/** The token of an account with access to everything. */
export const TOKEN = "hf_verySecretToken";

/** A token that the Hub knows, of an account without access. */
export const STRANGER = "hf_ofAnotherAccount";

const EXPOSED = "X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag,X-Xet-Hash";
const isLarge = (path) => /\.(safetensors|bin|gguf|pt)$/.test(path);

/**
 * Starts the servers. `repositories` are files by id (`{"org/tiny": {"config.json": bytes}}`). `org/gated`, `org/private` and
 * `org/limited` refuse as their names say; the files of `org/changed` are not those that are listed.
 */
export async function startHub(repositories) {
  const requests = [];
  const ranges = new Map();
  const identity = certificate();
  const listen = async (name, answer) => {
    const server = createServer(identity, (request, response) => {
      const { authorization: token = "", range = "", origin = "" } = request.headers;
      if (request.method !== "OPTIONS") requests.push({ name, method: request.method, path: request.url, token, range });
      response.setHeader("Access-Control-Allow-Origin", name === "hub" ? origin : "*");
      response.setHeader("Access-Control-Expose-Headers", name === "hub" ? EXPOSED : "*");
      if (request.method === "OPTIONS" && name === "hub") {
        return void response.writeHead(200, { "Access-Control-Allow-Headers": "authorization", "Access-Control-Allow-Methods": "GET,HEAD" }).end();
      }
      answer(request, response, { token: token.replace("Bearer ", ""), range });
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    return server;
  };
  const hub = await listen("hub", (request, response, { token, range }) => {
    const refuse = (status, code = "", message = "") => void response.writeHead(status, { "X-Error-Code": code, "X-Error-Message": message }).end(message);
    const url = new URL(request.url, "https://huggingface.co");
    const [, id, rest] = /^\/(?:api\/models\/|api\/resolve-cache\/models\/)?([\w-]+\/[\w-]+)\/(.*)$/.exec(url.pathname) ?? [];
    const files = repositories[id];
    if (token && ![TOKEN, STRANGER].includes(token)) return refuse(401, "", "Invalid credentials in Authorization header");
    if (id === "org/limited") return refuse(429);
    if (!files || (id === "org/private" && token !== TOKEN)) return token ? refuse(404, "RepoNotFound") : refuse(401, "", "Invalid username or password.");
    const [, kind, revision, path] = /^(revision|resolve|[0-9a-f]{40})\/?([^/]*)\/?(.*)$/.exec(rest) ?? [];
    if (kind === "revision") {
      if (!["main", "refs%2Fpr%2F1", COMMIT].includes(revision)) return refuse(404, "RevisionNotFound", `Invalid rev id: ${revision}`);
      const siblings = Object.entries(files).map(([rfilename, bytes]) => {
        const listed = id === "org/changed" ? Buffer.from("other bytes") : bytes;
        const lfs = isLarge(rfilename) ? { sha256: createHash("sha256").update(listed).digest("hex"), size: bytes.length } : undefined;
        return { rfilename, size: bytes.length, blobId: "b", lfs };
      });
      return void response.end(JSON.stringify({ id, sha: COMMIT, siblings }));
    }
    if (id === "org/gated" && token !== TOKEN) return refuse(token ? 403 : 401, "GatedRepo", "Access to model org/gated is restricted.");
    if (kind !== "resolve") return send(response, files[decodeURIComponent(`${revision}/${path}`.replace(/\/$/, ""))], range, request.method);
    const bytes = files[decodeURIComponent(path)];
    if (!bytes) return refuse(404, "EntryNotFound");
    const head = { "X-Repo-Commit": COMMIT, "X-Linked-Size": bytes.length };
    if (!isLarge(path)) return void response.writeHead(307, { ...head, Location: `/api/resolve-cache/models/${id}/${COMMIT}/${path}?etag=b` }).end();
    const key = String(ranges.size);
    ranges.set(key, range);
    response.writeHead(302, { ...head, Location: `https://cdn.hf.co/${id}/${path}?Key=${key}&Signature=a~b` }).end();
  });
  const storage = await listen("storage", (request, response, { range }) => {
    const url = new URL(request.url, "https://cdn.hf.co");
    const [, id, path] = /^\/([^/]+\/[^/]+)\/(.*)$/.exec(url.pathname);
    const signed = ranges.get(url.searchParams.get("Key"));
    // Signed for a request with a range, an address serves that range only.
    if (signed === undefined || (signed && signed !== range)) return void response.writeHead(403).end("Auth failed: invalid range");
    send(response, repositories[id][decodeURIComponent(path)], range, request.method);
  });
  const closed = (server) => (server.closeAllConnections(), new Promise((resolve) => server.close(resolve)));
  return { requests, ports: [hub.address().port, storage.address().port], close: () => Promise.all([hub, storage].map(closed)) };
}

/** Launches a browser for which the servers are the Hub and its storage. */
export function launchHub({ ports: [hub, storage] }) {
  return launch([`--host-resolver-rules=MAP huggingface.co:443 127.0.0.1:${hub},MAP cdn.hf.co:443 127.0.0.1:${storage}`, "--ignore-certificate-errors"]);
}

function send(response, bytes, range, method) {
  if (!bytes) return void response.writeHead(404, { "X-Error-Code": "EntryNotFound" }).end();
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range) ?? [];
  const end = first === undefined ? bytes.length : Math.min(Number(last) + 1, bytes.length);
  const part = bytes.subarray(Number(first ?? 0), end);
  const ranged = first === undefined ? {} : { "Content-Range": `bytes ${first}-${end - 1}/${bytes.length}` };
  response.writeHead(first === undefined ? 200 : 206, { ...ranged, "Content-Length": part.length, ETag: '"e"', "Cache-Control": "no-store" });
  response.end(method === "HEAD" ? undefined : part);
}

/** Returns a key and a certificate signed by itself (RFC 5280, version 1). The browser does not check it. */
function certificate() {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const der = (tag, ...parts) => {
    const body = Buffer.concat(parts);
    const length = body.length < 128 ? [body.length] : body.length < 256 ? [0x81, body.length] : [0x82, body.length >> 8, body.length & 255];
    return Buffer.concat([Buffer.from([tag, ...length]), body]);
  };
  const time = (text) => der(0x17, Buffer.from(text));
  const name = der(0x30, der(0x31, der(0x30, der(0x06, Buffer.from([0x55, 0x04, 0x03])), der(0x0c, Buffer.from("hub")))));
  // ecdsa-with-SHA256.
  const algorithm = der(0x30, der(0x06, Buffer.from([0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02])));
  const valid = der(0x30, time("200101000000Z"), time("490101000000Z"));
  const body = der(0x30, der(0x02, Buffer.from([1])), algorithm, name, valid, name, publicKey.export({ type: "spki", format: "der" }));
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, privateKey));
  const cert = der(0x30, body, algorithm, signature).toString("base64").replace(/.{64}/g, "$&\n");
  return { key: privateKey.export({ type: "pkcs8", format: "pem" }), cert: `-----BEGIN CERTIFICATE-----\n${cert}\n-----END CERTIFICATE-----\n` };
}
