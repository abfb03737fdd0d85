// Variable-length integers of differences, in base64: the mirror image of encoding.py.
const START = 0, END = 1, MOVE = 2;

class Reader {
  constructor(text) {
    const raw = atob(text);
    this.bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) this.bytes[i] = raw.charCodeAt(i);
    this.at = 0;
  }
  get done() { return this.at >= this.bytes.length; }
  unsigned() {
    let value = 0, scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  }
  signed() {
    const value = this.unsigned();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

function decodeJobs(text, count) {
  const reader = new Reader(text), instances = new Int32Array(count), gpus = new Int32Array(count);
  const submitted = new Float64Array(count), first = new Int32Array(count + 1);
  let now = 0;
  for (let j = 0; j < count; j++) {
    instances[j] = reader.unsigned();
    gpus[j] = reader.unsigned();
    now += reader.signed();
    submitted[j] = now;
    first[j + 1] = first[j] + instances[j];
  }
  const owner = new Int32Array(first[count]);
  for (let j = 0; j < count; j++) owner.fill(j, first[j], first[j + 1]);
  return { count, instances, gpus, submitted, first, owner };
}

function decodeSeries(text, quantum) {
  const reader = new Reader(text), times = [], values = [];
  let now = 0, level = 0;
  while (!reader.done) {
    now += reader.unsigned();
    level += reader.signed();
    times.push(now);
    values.push(level * quantum);
  }
  return { times, values };
}

// Position of the last entry that is not after t; -1 when all are.
function lastUntil(times, t) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle + 1; else high = middle;
  }
  return low - 1;
}
