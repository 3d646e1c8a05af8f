"use strict";

// Horizontal bars, one per position: the share of rounds that accepted at least so many drafted tokens.
const SVG = "http://www.w3.org/2000/svg";
const ROW = 22, LEFT = 22, WIDTH = 280, RIGHT = 46;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawAcceptance(place, counts, rounds) {
  const shares = counts.map((count) => (rounds ? count / rounds : 0));
  const told = shares.map((share, i) => `${i + 1}: ${Math.round(100 * share)} %`);
  if (place.dataset.told === told.join() && place.firstChild) return;
  place.dataset.told = told.join();
  if (!shares.length) {
    place.replaceChildren(Object.assign(document.createElement("p"), {
      className: "note", textContent: "Nothing drafted yet.",
    }));
    return;
  }
  const height = ROW * shares.length;
  const chart = element("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Acceptance per position, ${told.join(", ")}`,
  });
  const room = WIDTH - LEFT - RIGHT;
  shares.forEach((share, i) => {
    const y = i * ROW + 4, middle = y + 11;
    chart.append(
      element("text", { x: LEFT - 8, y: middle, "text-anchor": "end" }, String(i + 1)),
      element("rect", { class: "track", x: LEFT, y, width: room, height: ROW - 8, rx: 2 }),
      element("rect", { class: "bar", x: LEFT, y, width: Math.max(share * room, share > 0 ? 1 : 0), height: ROW - 8, rx: 2 }),
      element("text", { x: WIDTH, y: middle, "text-anchor": "end" }, `${Math.round(100 * share)} %`),
    );
  });
  place.replaceChildren(chart);
}

// A line of the last speeds; nothing while there are none.
function drawSpeeds(place, speeds) {
  const most = Math.max(...speeds);
  if (!(most > 0) || speeds.length < 2) {
    place.replaceChildren();
    return;
  }
  const width = 120, height = 32;
  const points = speeds.map((speed, i) =>
    `${((i * width) / (speeds.length - 1)).toFixed(1)},${(height - 2 - (speed / most) * (height - 4)).toFixed(1)}`);
  const chart = element("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  chart.append(
    element("polygon", { class: "under", points: `0,${height} ${points.join(" ")} ${width},${height}` }),
    element("polyline", { class: "line", points: points.join(" ") }),
  );
  place.replaceChildren(chart);
}
