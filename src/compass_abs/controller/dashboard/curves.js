// Curves over time.
import { since, svg } from "./parts.js";

export function drawCurve(target, output, samples, value, least, words) {
  if (samples.length < 2) return;
  const first = samples[0].time, span = Math.max(samples[samples.length - 1].time - first, 1);
  const top = Math.max(least, ...samples.map(value));
  const point = (sample) => `${(1000 * (sample.time - first) / span).toFixed(1)} ${(98 - 94 * value(sample) / top).toFixed(1)}`;
  const line = `M${samples.map(point).join("L")}`;
  target.setAttribute("viewBox", "0 0 1000 100");
  target.setAttribute("preserveAspectRatio", "none");
  target.replaceChildren(svg("path", { class: "rule", d: "M0 4H1000M0 98H1000" }),
    svg("path", { class: "area", d: `${line}L1000 98L0 98Z` }), svg("path", { class: "line", d: line }));
  const [most, ago] = target.closest("figure").querySelectorAll(".most, .ago");
  most.textContent = words(top);
  ago.textContent = `${since(first, first + span)} ago`;
  output.textContent = words(value(samples[samples.length - 1]));
}
