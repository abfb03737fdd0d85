// Who runs where at any moment: the event stream with a full copy of the state every so often.
class Replay {
  constructor(text, jobs, nodes) {
    this.jobs = jobs;
    this.nodes = nodes;
    const reader = new Reader(text), times = [], kinds = [], subjects = [], offsets = [], args = [];
    this.moves = [];
    let now = 0;
    while (!reader.done) {
      now += reader.unsigned();
      const packed = reader.unsigned(), kind = packed % 4, subject = (packed - kind) / 4;
      times.push(now); kinds.push(kind); subjects.push(subject); offsets.push(args.length);
      if (kind === START) for (let k = 0; k < jobs.instances[subject]; k++) args.push(reader.unsigned());
      else if (kind === MOVE) { this.moves.push(times.length - 1); args.push(reader.unsigned(), reader.unsigned()); }
      else if (kind !== END) args.push(reader.unsigned());
    }
    Object.assign(this, { times, kinds, subjects, offsets, args });
    this.moveTimes = this.moves.map((i) => times[i]);
    this.stride = Math.max(512, Math.ceil(times.length / 32));
    this.copies = [];
    this.reset();
    for (let i = 0; i < times.length; i++) {
      if (i % this.stride === 0) this.copies.push(this.copy());
      this.apply(i);
    }
  }
  reset() {
    this.applied = 0;
    this.where = new Int32Array(this.jobs.owner.length).fill(-1);
    this.down = new Uint8Array(this.nodes);
    this.phase = new Uint8Array(this.jobs.count);
  }
  copy() {
    return { applied: this.applied, where: this.where.slice(), down: this.down.slice(), phase: this.phase.slice() };
  }
  apply(i) {
    const { jobs, args, where } = this, subject = this.subjects[i], at = this.offsets[i];
    switch (this.kinds[i]) {
      case START:
        this.phase[subject] = 1;
        for (let k = 0; k < jobs.instances[subject]; k++) where[jobs.first[subject] + k] = args[at + k];
        break;
      case END:
        this.phase[subject] = 2;
        where.fill(-1, jobs.first[subject], jobs.first[subject + 1]);
        break;
      case MOVE:
        where[jobs.first[subject] + args[at]] = args[at + 1];
        break;
      default:
        this.down[subject] = args[at] ? 0 : 1;
    }
    this.applied = i + 1;
  }
  // The state right after everything that happens until t.
  seek(t) {
    const wanted = lastUntil(this.times, t) + 1;
    if (wanted < this.applied || wanted - this.applied > this.stride) {
      const copy = this.copies[Math.min(this.copies.length - 1, Math.floor(wanted / this.stride))];
      if (!copy) return this.reset();
      this.applied = copy.applied;
      this.where = copy.where.slice();
      this.down = copy.down.slice();
      this.phase = copy.phase.slice();
    }
    while (this.applied < wanted) this.apply(this.applied);
  }
  // Moves in (from, t], with the node that each instance came from; the state must be that of t.
  recentMoves(from, t) {
    const found = [];
    for (let m = lastUntil(this.moveTimes, t); m >= 0 && this.moveTimes[m] > from; m--) {
      const i = this.moves[m], at = this.offsets[i], instance = this.jobs.first[this.subjects[i]] + this.args[at];
      found.push({ instance, time: this.times[i], target: this.args[at + 1], source: -1, index: i });
    }
    for (const move of found) move.source = this.sourceOf(move);
    return found;
  }
  // Where an instance was before its move: its latest start or move before that.
  sourceOf(move) {
    const job = this.jobs.owner[move.instance], number = move.instance - this.jobs.first[job];
    for (let i = move.index - 1; i >= 0; i--) {
      if (this.subjects[i] !== job) continue;
      if (this.kinds[i] === START) return this.args[this.offsets[i] + number];
      if (this.kinds[i] === MOVE && this.args[this.offsets[i]] === number) return this.args[this.offsets[i] + 1];
    }
    return -1;
  }
  // Instances on each node, the largest first, then the oldest.
  contents() {
    const { owner, gpus } = this.jobs, nodes = Array.from({ length: this.nodes }, () => []);
    for (let u = 0; u < this.where.length; u++) if (this.where[u] >= 0) nodes[this.where[u]].push(u);
    for (const held of nodes) if (held.length > 1) held.sort((a, b) => gpus[owner[b]] - gpus[owner[a]] || a - b);
    return nodes;
  }
  // The job that has waited longest at t, and how many wait.
  waiting(t) {
    let head = -1, count = 0;
    for (let j = 0; j < this.jobs.count; j++) {
      if (this.phase[j] || this.jobs.submitted[j] > t) continue;
      if (head < 0 || this.jobs.submitted[j] < this.jobs.submitted[head]) head = j;
      count++;
    }
    return { head, count };
  }
}
