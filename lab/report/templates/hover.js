// Values under the pointer. The page reads fine without.
(() => {
  const value = (data, px) => {
    const [lo, hi, from, to, log] = data.split(",").map(Number);
    const share = (px - from) / (to - from);
    return log ? lo * Math.pow(hi / lo, share) : lo + share * (hi - lo);
  };
  const text = (number) => {
    const size = Math.abs(number);
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
    return number.toLocaleString("en", { maximumFractionDigits: digits });
  };
  const nearest = (lines, x) => {
    const found = new Map();
    for (const line of lines) {
      for (const point of line.points) {
        const far = Math.abs(point.x - x);
        const best = found.get(line.dataset.name);
        // Of the two corners of a step the later one is the value.
        if (far < 12 && (!best || far <= best.far)) found.set(line.dataset.name, { far, x: point.x, y: point.y });
      }
    }
    return found;
  };
  const hide = (svg) => {
    svg.querySelector(".cursor")?.remove();
    const reading = svg.closest("figure")?.querySelector(".reading");
    if (reading) reading.textContent = "";
  };
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.("svg.plot");
    document.querySelectorAll("svg.plot:has(.cursor)").forEach((other) => other !== svg && hide(other));
    if (!svg) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = nearest(svg.querySelectorAll("polyline[data-name]"), at.x);
    hide(svg);
    if (!found.size) return;
    const x = [...found.values()].reduce((a, b) => (a.far <= b.far ? a : b)).x;
    const [, , bottom, top] = svg.dataset.y.split(",").map(Number);
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    for (const [name, number] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) cursor.setAttribute(name, number);
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
    const parts = [...found].map(([name, point]) => `${name} ${text(value(svg.dataset.y, point.y))}`);
    const reading = svg.closest("figure")?.querySelector(".reading");
    if (reading) {
      reading.hidden = false;
      reading.textContent = `at ${text(value(svg.dataset.x, x))}: ${parts.join(" · ")}`;
    }
  });
})();
