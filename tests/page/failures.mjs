// A reporter for Node's test runner: prints a line for each failed test, with its file, a tab, its name and the error.

const flat = (text) => String(text).replace(/\s+/g, " ");

export default async function* failures(source) {
  for await (const { type, data } of source) {
    if (type !== "test:fail") continue;
    const error = data.details.error;
    yield `${data.file}\t${flat(data.name)}: ${flat(error?.cause?.stack ?? error?.cause ?? error?.message)}\n`;
  }
}
