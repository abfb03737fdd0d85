// One time series of every visible scheduler, as steps.
const MARGIN = { left: 44, right: 8, top: 8, bottom: 20 };

function niceStep(span, most) {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= raw);
}

function timeStep(seconds, most) {
  const steps = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  return steps.find((step) => seconds / step <= most) || Math.ceil(seconds / most / 604800) * 604800;
}

class Chart {
  constructor(spec, shared) {
    Object.assign(this, spec, { shared });
    this.figure = document.createElement('figure');
    this.figure.className = 'chart';
    const caption = document.createElement('figcaption');
    caption.textContent = spec.title;
    caption.title = spec.meaning;
    this.canvas = document.createElement('canvas');
    this.canvas.setAttribute('role', 'img');
    this.readout = document.createElement('p');
    this.readout.className = 'readout';
    this.figure.append(caption, this.canvas, this.readout);
  }
  written(value) {
    return this.share ? (value * 100).toFixed(1) + ' %' : Math.round(value * 100) / 100 + '';
  }
  lines() {
    return this.shared.runs.filter((run) => this.shared.visible.has(run.index) && run.series[this.key]);
  }
  x(t) {
    const [from, to] = this.shared.view;
    return MARGIN.left + (t - from) / (to - from || 1) * (this.width - MARGIN.left - MARGIN.right);
  }
  time(x) {
    const [from, to] = this.shared.view, share = (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  }
  draw(t) {
    const { colors, view } = this.shared, lines = this.lines(), height = 150;
    this.width = this.canvas.clientWidth || 300;
    const context = (this.context = prepare(this.canvas, this.width, height));
    let top = 1;
    for (const run of lines) {
      const { times, values } = run.series[this.key];
      for (let i = Math.max(0, lastUntil(times, view[0])); i < times.length && times[i] <= view[1]; i++) top = Math.max(top, values[i]);
    }
    const step = this.share ? 0.25 : Math.max(1, niceStep(top, 4)), highest = this.share ? 1 : Math.ceil(top / step) * step;
    const y = (value) => MARGIN.top + (1 - value / highest) * (height - MARGIN.top - MARGIN.bottom);
    this.axes(context, y, step, highest, height);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, this.width - MARGIN.left - MARGIN.right, height - MARGIN.bottom + 2);
    context.clip();
    for (const run of [...lines].reverse()) this.line(context, run, y);
    const cursor = this.x(t);
    context.strokeStyle = colors.soft;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(cursor, MARGIN.top);
    context.lineTo(cursor, height - MARGIN.bottom);
    context.stroke();
    if (this.shared.drag) {
      const [from, to] = this.shared.drag.map((moment) => this.x(moment));
      context.globalAlpha = 0.12;
      context.fillStyle = colors.ink;
      context.fillRect(Math.min(from, to), MARGIN.top, Math.abs(to - from), height - MARGIN.top - MARGIN.bottom);
      context.globalAlpha = 1;
    }
    context.restore();
    this.read(t, lines);
  }
  axes(context, y, step, highest, height) {
    const { colors, view, tick, clock } = this.shared;
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = colors.soft;
    context.strokeStyle = colors.grid;
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let value = 0; value <= highest + step / 1e6; value += step) {
      const level = Math.round(y(value)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, level);
      context.lineTo(this.width - MARGIN.right, level);
      context.stroke();
      context.fillText(this.share ? Math.round(value * 100) + ' %' : value.toLocaleString('en'), MARGIN.left - 6, level);
    }
    const seconds = timeStep((view[1] - view[0]) * tick, Math.max(2, Math.floor(this.width / 90)));
    context.textBaseline = 'alphabetic';
    const offset = this.shared.dayOffset; // so that labels fall on whole hours of the day
    for (let s = Math.ceil((view[0] * tick + offset) / seconds) * seconds - offset; s <= view[1] * tick; s += seconds) {
      const left = this.x(s / tick), text = clock(s / tick, seconds);
      context.textAlign = left > this.width - 40 ? 'right' : left < MARGIN.left + 16 ? 'left' : 'center';
      context.fillText(text, Math.min(left, this.width - 2), height - 5);
    }
  }
  // A pixel column at a time: where it enters, its extremes, where it leaves.
  line(context, run, y) {
    const { times, values } = run.series[this.key], { view } = this.shared;
    let i = Math.max(0, lastUntil(times, view[0]));
    if (!times.length) return;
    context.strokeStyle = run.color;
    context.lineWidth = 1.6;
    context.setLineDash(run.dash.map((d) => d * 1.6));
    context.lineJoin = 'round';
    context.beginPath();
    let level = y(values[i]), column = -1, low = 0, high = 0;
    context.moveTo(this.x(Math.max(times[i], view[0])), level);
    for (i++; i < times.length && times[i] <= view[1]; i++) {
      const left = Math.round(this.x(times[i]) * 2) / 2, next = y(values[i]);
      if (left !== column) {
        if (column >= 0) this.extremes(context, column, low, high, level);
        context.lineTo(left, level);
        column = left; low = high = level;
      }
      low = Math.min(low, next); high = Math.max(high, next);
      level = next;
    }
    if (column >= 0) this.extremes(context, column, low, high, level);
    context.lineTo(this.x(Math.min(view[1], this.shared.span[1])), level);
    context.stroke();
    context.setLineDash([]);
  }
  extremes(context, column, low, high, level) {
    if (low !== level) context.lineTo(column, low);
    if (high !== level) context.lineTo(column, high);
    context.lineTo(column, level);
  }
  read(t, lines) {
    const parts = lines.map((run) => {
      const { times, values } = run.series[this.key], i = lastUntil(times, t);
      return `${run.title} ${i < 0 ? '–' : this.written(values[i])}`;
    });
    this.readout.textContent = parts.join(' · ');
    this.canvas.setAttribute('aria-label', `${this.title} at ${this.shared.clock(t)}: ${parts.join(', ') || 'nothing chosen'}`);
  }
}
