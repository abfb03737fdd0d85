// The cluster as a picture: a bar for each node, a cell for each GPU, a colour for each job.
const GOLDEN = 137.508, MOST_ARROWS = 60;

function palette() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  return { ink: of('--ink'), soft: of('--soft'), line: of('--line'), cell: of('--cell'), partial: of('--partial'),
    moved: of('--moved'), grid: of('--grid'), paper: of('--paper') };
}

function jobColor(job, dark) {
  const hue = (job * GOLDEN) % 360, step = job % 3;
  return dark ? `hsl(${hue.toFixed(1)} 38% ${50 + 7 * step}%)` : `hsl(${hue.toFixed(1)} 46% ${54 + 7 * step}%)`;
}

// Gives a canvas as many pixels as the screen has under it; returns its context in CSS pixels.
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = height + 'px';
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// The largest bars that fit the width and a sensible height.
function barLayout(width, nodes, capacity, rack) {
  const tallest = Math.min(440, Math.max(260, window.innerHeight * 0.5));
  for (let cell = 22; cell >= 1; cell -= cell > 4 ? 1 : 0.5) {
    const gap = cell > 7 ? 3 : cell > 3 ? 2 : 1, high = Math.max(1, cell * 0.62), mark = cell > 4 ? 4 : 2;
    const most = Math.max(1, Math.floor((width + gap) / (cell + gap))), rows = Math.ceil(nodes / most);
    // Rows of equal length, and of whole racks where those fit.
    const columns = rack > 1 && most > rack ? Math.min(most - (most % rack), Math.ceil(Math.ceil(nodes / rows) / rack) * rack) : Math.ceil(nodes / rows);
    const lines = Math.ceil(nodes / columns);
    const pitch = capacity * high + mark + (lines > 1 ? Math.max(4, gap * 3) : 0), height = lines * pitch;
    const wide = Math.min(cell * 1.4, (width + gap) / columns - gap);
    if (height <= tallest || cell <= 1) return { cell: wide, gap, high, mark, columns, rows: lines, pitch, height: Math.max(height, 40) };
  }
}

// What a job asks for. An instance larger than a panel is on so many panels of one domain.
function shapeOf(jobs, job, names) {
  const panels = jobs.panels ? jobs.panels[job] : 1, instances = jobs.instances[job] / panels;
  if (panels > 1) return `${instances > 1 ? `${instances} × ` : ''}${panels} whole ${names.node}s together`;
  const size = jobs.gpus[job] === 1 ? '1 GPU' : `${jobs.gpus[job]} GPUs`;
  return instances > 1 ? `${instances} × ${size}` : jobs.gpus[job] === 1 ? size : `${size} on one ${names.node}`;
}

class Picture {
  constructor(canvas, facts, shared) {
    Object.assign(this, { canvas, facts, shared, replay: null, title: '' });
  }
  show(replay, title) {
    this.replay = replay;
    this.title = title;
  }
  place(i) {
    const l = this.layout, column = i % l.columns, row = Math.floor(i / l.columns);
    return { x: column * (l.cell + l.gap), y: row * l.pitch };
  }
  draw(t, trail) {
    if (!this.replay) return;
    const { nodes, capacity, jobs, rack } = this.shared, { replay } = this, colors = this.shared.colors;
    const width = this.canvas.clientWidth || 300, l = (this.layout = barLayout(width, nodes, capacity, rack));
    const context = prepare(this.canvas, width, l.height);
    replay.seek(t);
    const contents = replay.contents(), used = contents.map((held) => held.reduce((s, u) => s + jobs.gpus[jobs.owner[u]], 0));
    this.order = this.shared.sorted
      ? [...contents.keys()].sort((a, b) => used[b] - used[a] || a - b) : [...contents.keys()];
    this.slotOf = new Int32Array(nodes);
    this.order.forEach((node, i) => { this.slotOf[node] = i; });
    this.contents = contents;
    let partial = 0, empty = 0, free = 0, down = 0;
    const line = l.cell > 5 ? 1 : l.cell > 2.5 ? 0.5 : 0;
    for (let i = 0; i < nodes; i++) {
      const node = this.order[i], { x, y } = this.place(i), foot = y + capacity * l.high;
      if (replay.down[node]) down++;
      else {
        free += capacity - used[node];
        if (!used[node]) empty++;
        else if (used[node] < capacity) {
          partial++;
          context.fillStyle = colors.partial;
          context.fillRect(x, foot + 1, l.cell, Math.max(1, l.mark - 2));
        }
      }
      context.fillStyle = colors.cell;
      context.globalAlpha = replay.down[node] ? 0.35 : 1;
      context.fillRect(x, y, l.cell, capacity * l.high);
      let top = foot;
      for (const u of contents[node]) {
        const job = jobs.owner[u], high = jobs.gpus[job] * l.high;
        top -= high;
        context.globalAlpha = this.shared.focus < 0 || this.shared.focus === job ? 1 : 0.16;
        context.fillStyle = this.shared.jobColors(job);
        context.fillRect(x, top, l.cell, high - line);
      }
      context.globalAlpha = 1;
    }
    if (rack > 1 && !this.shared.sorted) this.drawRacks(context, rack);
    const moved = this.drawMoves(context, t, trail);
    this.describe(t, { partial, empty, free, down, moved, racks: rack > 1 ? this.emptyRacks(rack) : null });
  }
  // Racks of which every panel is up and empty.
  emptyRacks(rack) {
    let count = 0;
    for (let first = 0; first < this.shared.nodes; first += rack) {
      const panels = this.contents.slice(first, first + rack);
      if (panels.every((held, i) => !held.length && !this.replay.down[first + i])) count++;
    }
    return count;
  }
  // A frame around the panels of each rack, in as many parts as it has rows.
  drawRacks(context, rack) {
    const { nodes, capacity, colors } = this.shared, l = this.layout;
    context.strokeStyle = colors.ink;
    context.lineWidth = l.gap > 1 ? 1 : 0.5;
    for (let first = 0; first < nodes; ) {
      const last = Math.min(nodes, (Math.floor(first / rack) + 1) * rack, (Math.floor(first / l.columns) + 1) * l.columns) - 1;
      const from = this.place(first), to = this.place(last);
      context.strokeRect(from.x - l.gap / 2, from.y - 1, to.x + l.cell + l.gap - from.x, capacity * l.high + 2);
      first = last + 1;
    }
  }
  drawMoves(context, t, trail) {
    const moves = this.replay.recentMoves(t - trail, t), l = this.layout, { capacity, colors } = this.shared;
    context.strokeStyle = context.fillStyle = colors.moved;
    for (const [i, move] of moves.entries()) {
      const fade = 1 - 0.75 * (t - move.time) / trail, to = this.place(this.slotOf[move.target]);
      context.globalAlpha = fade;
      context.lineWidth = Math.max(1, Math.min(2, l.cell / 6));
      context.strokeRect(to.x - 1, to.y - 1, l.cell + 2, capacity * l.high + 2);
      if (move.source < 0 || i >= MOST_ARROWS) continue;
      const from = this.place(this.slotOf[move.source]), middle = capacity * l.high / 2;
      this.arrow(context, from.x + l.cell / 2, from.y + middle, to.x + l.cell / 2, to.y + middle);
    }
    context.globalAlpha = 1;
    return moves.length;
  }
  arrow(context, x0, y0, x1, y1) {
    const bend = Math.min(46, 12 + Math.hypot(x1 - x0, y1 - y0) * 0.18), size = Math.max(5, Math.min(8, this.layout.cell * 0.6));
    const cx = (x0 + x1) / 2, cy = Math.max(2, Math.min(y0, y1) - bend), angle = Math.atan2(y1 - cy, x1 - cx);
    context.beginPath();
    context.moveTo(x0, y0);
    context.quadraticCurveTo(cx, cy, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - size * Math.cos(angle - 0.45), y1 - size * Math.sin(angle - 0.45));
    context.lineTo(x1 - size * Math.cos(angle + 0.45), y1 - size * Math.sin(angle + 0.45));
    context.fill();
  }
  describe(t, now) {
    const { jobs, names = { node: 'node', rack: '' } } = this.shared, { head, count } = this.replay.waiting(t), bold = (n) => `<b>${n}</b>`;
    let text = `${bold(now.partial)} partly filled, ${bold(now.empty)} empty, ${bold(now.free)} GPUs free`;
    if (now.racks !== null) text += `, ${bold(now.racks)} ${now.racks === 1 ? names.rack : names.rack + 's'} empty`;
    if (now.down) text += `, ${now.down} ${now.down === 1 ? names.node : names.node + 's'} away`;
    if (now.moved) text += `. ${now.moved} just moved`;
    if (head < 0) text += '<br><span class="quiet">Nobody waits.</span>';
    else {
      const wanted = jobs.instances[head] * jobs.gpus[head], stuck = now.free >= wanted;
      const shape = shapeOf(jobs, head, names);
      text += `<br>${bold(count)} waiting, the first for ${shape}. `;
      text += stuck ? '<span class="stuck">Enough are free, but scattered.</span>' : `<span class="quiet">${wanted - now.free} too few are free.</span>`;
    }
    this.facts.innerHTML = text; // numbers and fixed words only: names of jobs never come here
    this.canvas.setAttribute('aria-label', `${this.title}: ${this.facts.textContent}`);
  }
  // The node and job under a point of the canvas.
  at(x, y) {
    const l = this.layout;
    if (!l || !this.contents) return null;
    const column = Math.floor(x / (l.cell + l.gap)), row = Math.floor(y / l.pitch), i = row * l.columns + column;
    if (column < 0 || column >= l.columns || i < 0 || i >= this.order.length) return null;
    const node = this.order[i], { jobs, capacity } = this.shared;
    let level = Math.floor((capacity * l.high - (y - row * l.pitch)) / l.high);
    for (const u of this.contents[node]) {
      level -= jobs.gpus[jobs.owner[u]];
      if (level < 0) return { node, job: jobs.owner[u] };
    }
    return { node, job: -1 };
  }
}
