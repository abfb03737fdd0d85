// Ties slider, pictures and charts to one moment of one day.
const data = JSON.parse(document.getElementById('data').textContent);
const el = (id) => document.getElementById(id);
const jobs = { ...decodeJobs(data.jobs.packed, data.jobs.ids.length), panels: data.jobs.panels };
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const span = data.span, tick = data.tick, dayOffset = data.epoch === null ? 0 : ((data.epoch % 86400) + 86400) % 86400;
const fills = new Map();
let printing = false;

const shared = {
  jobs, span, tick, dayOffset, nodes: data.nodes, capacity: data.capacity, rack: data.rack, names: data.names, view: [...data.view], drag: null,
  runs: data.runs.map((run, index) => ({ ...run, index, series: Object.fromEntries(
    Object.entries(run.series).map(([key, text]) => [key, decodeSeries(text, data.quanta[key])])) })),
  visible: new Set(data.visible), colors: palette(), sorted: false, focus: -1,
  jobColors(job) {
    if (!fills.has(job)) fills.set(job, jobColor(job, dark.matches && !printing));
    return fills.get(job);
  },
  // A moment for people: the day and hour of the trace, or time since its start.
  clock(t, resolution = 1) {
    const seconds = Math.round(t * tick), pad = (n) => String(n).padStart(2, '0');
    const local = seconds + dayOffset, day = Math.floor(local / 86400), rest = ((local % 86400) + 86400) % 86400;
    const [h, m, s] = [Math.floor(rest / 3600), Math.floor(rest / 60) % 60, rest % 60];
    if (resolution >= 86400) return data.epoch === null ? `day ${day + 1}` : date(day);
    const hour = resolution >= 60 ? `${pad(h)}:${pad(m)}` : `${pad(h)}:${pad(m)}:${pad(s)}`;
    if (resolution > 1) return rest === 0 && day > 0 ? (data.epoch === null ? `day ${day + 1}` : date(day)) : hour;
    return data.epoch === null ? (day ? `day ${day + 1}, ${hour}` : hour) : `${date(day)}, ${hour}`;
  },
};
function date(day) {
  const moment = new Date((Math.floor(data.epoch / 86400) + day) * 86400000);
  return `${moment.getUTCDate()} ${'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ')[moment.getUTCMonth()]}`;
}

const pictures = el('panels') ? ['left', 'right'].map((side) => new Picture(el(`cluster-${side}`), el(`facts-${side}`), shared)) : [];
const charts = el('charts') ? data.series.map((spec) => new Chart(spec, shared)) : [];
const replays = new Map();
let time = data.start, hovered = null, playing = false, lastFrame = 0, asked = false;

function replayOf(index) {
  if (!replays.has(index)) replays.set(index, new Replay(shared.runs[index].events, jobs, data.nodes));
  return replays.get(index);
}
// How long a migration stays visible: a second of playing.
function trail() { return (el('speed') ? Number(el('speed').value) : 600) / tick; }

function render() {
  asked = false;
  const shown = hovered === null ? time : hovered;
  for (const picture of pictures) picture.draw(time, trail());
  for (const chart of charts) chart.draw(shown);
  if (!el('controls')) return;
  const slider = el('time');
  const [from, to] = shared.view;
  slider.value = Math.round((time - from) / (to - from || 1) * 10000);
  slider.setAttribute('aria-valuetext', shared.clock(time));
  el('clock').textContent = shared.clock(time);
  if (el('zoom-out')) el('zoom-out').hidden = shared.view[0] === span[0] && shared.view[1] === span[1];
}
function redraw() { if (!asked) { asked = true; requestAnimationFrame(render); } }
// The slider covers what the charts show, so that zooming in also makes it finer.
function go(moment) { time = Math.min(shared.view[1], Math.max(shared.view[0], moment)); redraw(); }
function look(from, to) { shared.view = to - from < 10 ? [...span] : [from, to]; go(time); }

function play(on) {
  playing = on;
  el('play').textContent = on ? '❚❚' : '▶';
  el('play').setAttribute('aria-label', on ? 'Pause' : 'Play');
  if (on) { if (time >= shared.view[1]) time = shared.view[0]; lastFrame = performance.now(); requestAnimationFrame(frame); }
}
function frame(now) {
  if (!playing) return;
  time = Math.min(shared.view[1], time + (now - lastFrame) / 1000 * Number(el('speed') ? el('speed').value : 1200) / tick);
  lastFrame = now;
  render();
  if (time >= shared.view[1]) play(false); else requestAnimationFrame(frame);
}

function jump(direction) {
  const moments = pictures.flatMap((picture) => (picture.replay ? picture.replay.moveTimes : []));
  const next = direction > 0 ? Math.min(...moments.filter((t) => t > time)) : Math.max(...moments.filter((t) => t < time));
  if (!Number.isFinite(next)) return;
  play(false);
  if (next < shared.view[0] || next > shared.view[1]) shared.view = [...span];
  go(next);
}

function fillSelects() {
  const withEvents = shared.runs.filter((run) => run.events !== null);
  for (const [i, side] of ['left', 'right'].entries()) {
    const select = el(`pick-${side}`);
    for (const run of withEvents) select.append(new Option(run.title, run.index));
    select.value = data.sides[i];
    const choose = () => {
      const index = Number(select.value);
      pictures[i].show(replayOf(index), shared.runs[index].title);
      redraw();
    };
    select.addEventListener('change', choose);
    choose();
  }
}

function nodeName(node) {
  const { levels } = data.names;
  if (!levels.length) return `n${node}`;
  let name = `${data.names.node}${node % levels[0][1]}`, left = node;
  for (const [i, [level, size]] of levels.entries()) {
    left = Math.floor(left / size);
    name = `${level}${i + 1 < levels.length ? left % levels[i + 1][1] : left}-${name}`;
  }
  return name;
}

function pointAt(event, i) {
  const box = pictures[i].canvas.getBoundingClientRect();
  const hit = pictures[i].at(event.clientX - box.left, event.clientY - box.top);
  shared.focus = hit ? hit.job : -1;
  let text = '';
  if (hit) {
    text = nodeName(hit.node) + ': ';
    if (hit.job < 0) text += 'free';
    else {
      const name = data.jobs.ids[hit.job];
      const whole = jobs.panels && jobs.panels[hit.job] > 1;
      const shape = whole ? shapeOf(jobs, hit.job, data.names) : `${jobs.instances[hit.job]} × ${jobs.gpus[hit.job]} GPUs`;
      text += `job ${name.length > 60 ? name.slice(0, 59) + '…' : name}, ${shape}`;
    }
  }
  el('hover').textContent = text;
  redraw();
}

function makeChips() {
  for (const run of shared.runs) {
    if (!Object.keys(run.series).length) continue;
    const chip = document.createElement('button'), name = document.createElement('span');
    chip.type = 'button';
    chip.append(swatch(run), name);
    name.textContent = run.title;
    const mark = () => chip.setAttribute('aria-pressed', String(shared.visible.has(run.index)));
    chip.addEventListener('click', () => {
      if (!shared.visible.delete(run.index)) shared.visible.add(run.index);
      mark();
      redraw();
    });
    mark();
    el('chips').append(chip);
  }
}
function swatch(run) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg'), line = document.createElementNS(svg.namespaceURI, 'line');
  svg.setAttribute('class', 'swatch');
  svg.setAttribute('viewBox', '0 0 22 8');
  svg.setAttribute('aria-hidden', 'true');
  for (const [key, value] of Object.entries({ x1: 0, x2: 22, y1: 4, y2: 4, stroke: run.color, 'stroke-width': 3,
    'stroke-dasharray': run.dash.map((d) => d * 2).join(' ') || 'none' })) line.setAttribute(key, value);
  svg.append(line);
  return svg;
}

function listenTo(chart) {
  const moment = (event) => chart.time(event.clientX - chart.canvas.getBoundingClientRect().left);
  let from = null, started = 0;
  chart.canvas.addEventListener('pointermove', (event) => {
    hovered = moment(event);
    if (from !== null && Math.abs(event.clientX - started) > 6) shared.drag = [from, hovered];
    redraw();
  });
  chart.canvas.addEventListener('pointerdown', (event) => {
    if (event.pointerType === 'touch') return;
    from = moment(event);
    started = event.clientX;
    chart.canvas.setPointerCapture(event.pointerId);
  });
  chart.canvas.addEventListener('pointerup', (event) => {
    const end = moment(event);
    if (shared.drag) look(Math.min(from, end), Math.max(from, end));
    else go(end);
    from = shared.drag = null;
    redraw();
  });
  for (const name of ['pointerleave', 'pointercancel']) {
    chart.canvas.addEventListener(name, () => { hovered = null; from = shared.drag = null; redraw(); });
  }
}

// Paper is white whatever the screen is, and the browser computes styles for it too late for the canvases.
const PRINTED = { ink: '#000', soft: '#444', line: '#bbb', cell: '#eee', partial: '#b87800', moved: '#000', grid: '#e5e5e5' };
function recolor() { fills.clear(); shared.colors = printing ? PRINTED : palette(); }

if (el('controls')) {
  el('time').addEventListener('input', () => {
    play(false);
    const [from, to] = shared.view;
    go(from + Number(el('time').value) / 10000 * (to - from));
  });
  el('play').addEventListener('click', () => play(!playing));
}
if (pictures.length) {
  el('previous-move').addEventListener('click', () => jump(-1));
  el('next-move').addEventListener('click', () => jump(1));
  el('sorted').addEventListener('change', () => { shared.sorted = el('sorted').checked; redraw(); });
  el('speed').addEventListener('change', redraw);
  pictures.forEach((picture, i) => {
    picture.canvas.addEventListener('pointermove', (event) => pointAt(event, i));
    picture.canvas.addEventListener('pointerdown', (event) => pointAt(event, i));
    picture.canvas.addEventListener('pointerleave', () => { shared.focus = -1; el('hover').textContent = ''; redraw(); });
  });
  fillSelects();
}
if (charts.length) {
  makeChips();
  for (const chart of charts) { el('charts').append(chart.figure); listenTo(chart); }
  el('zoom-out').addEventListener('click', () => look(...span));
}
window.addEventListener('resize', redraw);
dark.addEventListener('change', () => { recolor(); redraw(); });
window.addEventListener('beforeprint', () => { printing = true; recolor(); render(); });
window.addEventListener('afterprint', () => { printing = false; recolor(); redraw(); });
render();
document.documentElement.dataset.ready = 'yes';
