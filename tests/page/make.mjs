// Creates files that are too large or too many to keep as fixtures.

import { crc32, deflateRawSync } from "node:zlib";
import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from "node:fs";

/** Returns a pickle (protocol 2) of a flat dict of `count` floats. */
export function manyKeys(count) {
  const parts = [Buffer.from([0x80, 2, 0x7d, 0x28])];
  for (let at = 0; at < count; at++) {
    const value = Buffer.alloc(9);
    value[0] = 0x47;
    value.writeDoubleBE(at / 1000, 1);
    parts.push(text(`module.${at % 7}.part_${at}.weight_scale`), value);
  }
  parts.push(Buffer.from("u."));
  return Buffer.concat(parts);
}

/** Returns a safetensors file with four float32 zeros for each key. */
export function safetensors(keys) {
  const head = {};
  keys.forEach((key, at) => (head[key] = { dtype: "F32", shape: [4], data_offsets: [at * 16, at * 16 + 16] }));
  const text = Buffer.from(JSON.stringify(head));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, Buffer.alloc(keys.length * 16)]);
}

/** Returns a safetensors file of float32 tensors, given as lists of numbers or of rows. */
export function floats(tensors) {
  const head = {};
  let at = 0;
  for (const [key, values] of Object.entries(tensors)) {
    const shape = Array.isArray(values[0]) ? [values.length, values[0].length] : [values.length];
    head[key] = { dtype: "F32", shape, data_offsets: [at, (at += 4 * values.flat().length)] };
  }
  const text = Buffer.from(JSON.stringify(head));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...Object.values(tensors).map((values) => Buffer.from(Float32Array.from(values.flat()).buffer))]);
}

/** Returns a safetensors file of tensors, each given as dtype, shape and bytes. */
export function stored(tensors) {
  const head = {};
  let at = 0;
  for (const [key, [dtype, shape, bytes]] of Object.entries(tensors)) {
    head[key] = { dtype, shape, data_offsets: [at, (at += bytes.length)] };
  }
  const text = JSON.stringify(head);
  const padded = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, padded, ...Object.values(tensors).map(([, , bytes]) => bytes)]);
}

/**
 * Writes a sparse PyTorch zip file with tensors of zeros, which needs hardly any disk space.
  * @param {string} path
  * @param {number} tensors number of tensors
  * @param {number} numel float32 elements per tensor, below 2^31
 */
export function sparseCheckpoint(path, tensors, numel) {
  const names = ["data.pkl", "byteorder", "version"];
  const bodies = [pickle(tensors, numel), Buffer.from("little"), Buffer.from("3\n")];
  const entries = [];
  const file = openSync(path, "w");
  let at = 0;
  const entry = (name, length, body) => {
    const encoded = Buffer.from(`archive/${name}`);
    const head = Buffer.alloc(30);
    head.writeUInt32LE(0x04034b50, 0);
    head.writeUInt16LE(45, 4);
    head.writeUInt32LE(0xffffffff, 18);
    head.writeUInt32LE(0xffffffff, 22);
    head.writeUInt16LE(encoded.length, 26);
    const extra = zip64([length, length]);
    // An extra field aligns the data of each record to 64 bytes, as torch does.
    const padding = (64 - ((at + 30 + encoded.length + extra.length + 4) % 64)) % 64;
    const filler = Buffer.alloc(4 + padding);
    filler.write("FB");
    filler.writeUInt16LE(padding, 2);
    head.writeUInt16LE(extra.length + filler.length, 28);
    const whole = Buffer.concat([head, encoded, extra, filler]);
    writeSync(file, whole, 0, whole.length, at);
    entries.push({ encoded, length, offset: at });
    at += whole.length;
    if (body) writeSync(file, body, 0, body.length, at);
    at += length;
  };
  names.forEach((name, index) => entry(name, bodies[index].length, bodies[index]));
  for (let index = 0; index < tensors; index++) entry(`data/${index}`, numel * 4);
  const directory = Buffer.concat(
    entries.map(({ encoded, length, offset }) => {
      const extra = zip64([length, length, offset]);
      const head = Buffer.alloc(46);
      head.writeUInt32LE(0x02014b50, 0);
      head.writeUInt16LE(45, 4);
      head.writeUInt16LE(45, 6);
      head.writeUInt32LE(0xffffffff, 20);
      head.writeUInt32LE(0xffffffff, 24);
      head.writeUInt16LE(encoded.length, 28);
      head.writeUInt16LE(extra.length, 30);
      head.writeUInt32LE(0xffffffff, 42);
      return Buffer.concat([head, encoded, extra]);
    }),
  );
  const end = Buffer.alloc(56 + 20 + 22);
  end.writeUInt32LE(0x06064b50, 0);
  end.writeBigUInt64LE(44n, 4);
  end.writeUInt16LE(45, 12);
  end.writeUInt16LE(45, 14);
  end.writeBigUInt64LE(BigInt(entries.length), 24);
  end.writeBigUInt64LE(BigInt(entries.length), 32);
  end.writeBigUInt64LE(BigInt(directory.length), 40);
  end.writeBigUInt64LE(BigInt(at), 48);
  end.writeUInt32LE(0x07064b50, 56);
  end.writeBigUInt64LE(BigInt(at + directory.length), 64);
  end.writeUInt32LE(1, 72);
  end.writeUInt32LE(0x06054b50, 76);
  end.writeUInt16LE(0xffff, 84);
  end.writeUInt16LE(0xffff, 86);
  end.writeUInt32LE(0xffffffff, 88);
  end.writeUInt32LE(0xffffffff, 92);
  writeSync(file, directory, 0, directory.length, at);
  writeSync(file, end, 0, end.length, at + directory.length);
  ftruncateSync(file, at + directory.length + end.length);
  closeSync(file);
}

function zip64(numbers) {
  const extra = Buffer.alloc(4 + 8 * numbers.length);
  extra.writeUInt16LE(1, 0);
  extra.writeUInt16LE(8 * numbers.length, 2);
  numbers.forEach((number, index) => extra.writeBigUInt64LE(BigInt(number), 4 + 8 * index));
  return extra;
}

function text(string) {
  const bytes = Buffer.from(string);
  const head = Buffer.alloc(5);
  head[0] = 0x58;
  head.writeUInt32LE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** Returns the pickle of `{"layer.0.weight": tensor, …}`, as torch.save writes it. */
function pickle(tensors, numel) {
  const count = Buffer.alloc(5);
  count[0] = 0x4a;
  count.writeInt32LE(numel, 1);
  const parts = [Buffer.from([0x80, 2, 0x7d])];
  for (let index = 0; index < tensors; index++) {
    parts.push(
      text(`layer.${index}.weight`),
      Buffer.from("ctorch._utils\n_rebuild_tensor_v2\n(("),
      text("storage"),
      Buffer.from("ctorch\nFloatStorage\n"),
      text(String(index)),
      text("cpu"),
      count,
      Buffer.from("tQK\x00", "latin1"),
      count,
      Buffer.from("\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs", "latin1"),
    );
  }
  parts.push(Buffer.from("."));
  return Buffer.concat(parts);
}

/**
 * Writes a safetensors file of float32 tensors of 8 MB each. A value depends on the seed, its tensor and its position.
  * @param {string} path
  * @param {number} tensors number of tensors
  * @param {number} seed distinguishes files
 */
export function denseCheckpoint(path, tensors, seed) {
  const each = 8 << 20;
  const entries = {};
  for (let at = 0; at < tensors; at++) {
    entries[`layers.${at}.weight`] = { dtype: "F32", shape: [1024, 2048], data_offsets: [at * each, (at + 1) * each] };
  }
  const header = Buffer.from(JSON.stringify(entries));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const file = openSync(path, "w");
  writeSync(file, length);
  writeSync(file, header);
  const values = new Float32Array(each / 4);
  for (let tensor = 0; tensor < tensors; tensor++) {
    for (let at = 0; at < values.length; at++) values[at] = seed + tensor + at / values.length;
    writeSync(file, Buffer.from(values.buffer));
  }
  closeSync(file);
}

/**
 * Writes a safetensors file with the keys of a small Llama and values like those of a trained one: smaller deviations in
  * lower layers, one NaN, and one layer whose MLP matrices are too large. `steps` simulates further training: each value
  * changes a little, those of upper layers more.
 */
export function trainedCheckpoint(path, layers = 16, width = 96, steps = 0) {
  const shapes = { "model.embed_tokens.weight": [512, width] };
  for (let at = 0; at < layers; at++) {
    const layer = `model.layers.${at}`;
    for (const name of ["q", "k", "v", "o"]) shapes[`${layer}.self_attn.${name}_proj.weight`] = [width, width];
    for (const name of ["gate", "up"]) shapes[`${layer}.mlp.${name}_proj.weight`] = [2 * width, width];
    shapes[`${layer}.mlp.down_proj.weight`] = [width, 2 * width];
    for (const name of ["input", "post_attention"]) shapes[`${layer}.${name}_layernorm.weight`] = [width];
  }
  shapes["model.norm.weight"] = [width];
  const head = { __metadata__: { format: "pt" } };
  const parts = [];
  let at = 0;
  // The sum of twelve uniform numbers approximates a normal distribution.
  const random = (seed) => () => {
    let sum = -6;
    for (let turn = 0; turn < 12; turn++) {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      sum += seed / 2 ** 32;
    }
    return sum;
  };
  const [normal, moved] = [random(1), random(2)];
  for (const [key, shape] of Object.entries(shapes)) {
    const layer = Number(/layers\.(\d+)/.exec(key)?.[1] ?? 0);
    const count = shape.reduce((product, dim) => product * dim, 1);
    const spread = 0.02 * (1 + layer / layers) * (layer === 9 && key.includes("mlp") ? 6 : 1);
    const values = Float32Array.from({ length: count }, () => (shape.length === 1 ? 1 + 0.01 * normal() : spread * normal()));
    const move = 0.0004 * Math.sqrt(steps) * (1 + layer / layers) * (shape.length === 1 ? 0.2 : 1);
    // Weights of norms grow; other values change in both directions.
    if (steps) values.forEach((value, at) => (values[at] = value + move * (moved() + (shape.length === 1 ? 1 : 0))));
    if (key === "model.layers.5.mlp.up_proj.weight") values[120 * width + 57] = NaN;
    head[key] = { dtype: "F32", shape, data_offsets: [at, at + values.byteLength] };
    at += values.byteLength;
    parts.push(Buffer.from(values.buffer));
  }
  const text = Buffer.from(JSON.stringify(head).padEnd(Math.ceil(JSON.stringify(head).length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

/**
 * Returns a zip file with these members: `stored`, `deflated`, or marked as `encrypted`.
 * @param {Record<string, Buffer>} members contents by name
 */
export function zip(members, mode = "stored") {
  const [parts, entries] = [[], []];
  let at = 0;
  for (const [name, content] of Object.entries(members)) {
    const bytes = Buffer.from(content);
    const data = mode === "deflated" ? deflateRawSync(bytes) : bytes;
    const head = Buffer.alloc(30);
    head.writeUInt32LE(0x04034b50, 0);
    head.writeUInt16LE(20, 4);
    head.writeUInt16LE(mode === "encrypted" ? 1 : 0, 6);
    head.writeUInt16LE(mode === "deflated" ? 8 : 0, 8);
    head.writeUInt32LE(crc32(bytes), 14);
    head.writeUInt32LE(data.length, 18);
    head.writeUInt32LE(bytes.length, 22);
    head.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(20, 4);
    head.copy(entry, 6, 4, 30);
    entry.writeUInt32LE(at, 42);
    entries.push(entry, Buffer.from(name));
    parts.push(head, Buffer.from(name), data);
    at += head.length + name.length + data.length;
  }
  const directory = Buffer.concat(entries);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(Object.keys(members).length, 8);
  end.writeUInt16LE(Object.keys(members).length, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, directory, end]);
}
