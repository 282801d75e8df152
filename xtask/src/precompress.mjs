// Writes FILE.gz and FILE.br beside files, where that makes them smaller.
//
//     node precompress.mjs FOLDER FILE…    files are named from the folder

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const [, , folder, ...files] = process.argv;
for (const file of files) {
  const path = join(folder, file);
  const bytes = readFileSync(path);
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
  for (const [end, packed] of [["gz", gzipSync(bytes, { level: 9 })], ["br", brotliCompressSync(bytes, { params })]]) {
    if (packed.length < 0.95 * bytes.length) writeFileSync(`${path}.${end}`, packed);
  }
}
