// Draws the balance of a budget, event by event or over time, out of the table that says the same
// in words.
"use strict";

(() => {
  const place = document.getElementById("plot");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const axis = document.getElementById("axis");
  let byTime = false; // events of a minute may be a single line on an axis of weeks
  let plot = null;

  // how times are written below the axis: [seconds between marks, mark, more where that changes]
  const DAY = "\n{YYYY}-{MM}-{DD}";
  const TIMES = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [86400, "{MMM} {DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
    [0.001, "{ss}.{fff}", `${DAY} {HH}:{mm}`, null, DAY, null, `${DAY} {HH}:{mm}`, null, 1],
  ];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const events = () => [...document.querySelectorAll("#course-table tbody tr")];

  // columns: time (seconds) or place, cap, spent, spent + held, spent + held + saved
  function columns() {
    const numbers = events().map((row, place) => {
      const [cap, spent, held, , saved] = [...row.querySelectorAll("data")].map((d) => +d.value);
      const at = byTime ? Date.parse(row.querySelector("time").dateTime) / 1000 : place;
      return [at, cap, spent, spent + held, spent + held + saved];
    });
    // the last balance is as wide as the others
    if (!byTime && numbers.length) numbers.push([numbers.length, ...numbers.at(-1).slice(1)]);
    return [0, 1, 2, 3, 4].map((i) => numbers.map((row) => row[i]));
  }

  // an event as the table names it, such as "12 settled"
  function named(place) {
    const rows = events();
    return rows[Math.min(place, rows.length - 1)]?.querySelector("th").textContent ?? "";
  }

  // below the axis: the numbers of events
  const numbered = (_, places) => places.map((place) =>
    Number.isInteger(place) && place < events().length ? named(place).split(" ")[0] : "");

  // slanted lines, as in the bars: what is held is told apart without its colour
  function hatch(context) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour("--held");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const x of [-8, 0, 8]) {
      pen.moveTo(x, 8);
      pen.lineTo(x + 8, 0);
    }
    pen.stroke();
    return context.createPattern(tile, "repeat");
  }

  // six digits, as in the table: what is taken is rounded up, what others would take is rounded down
  function rounded(value, way) {
    if (value == null) return "–";
    const plain = +value.toPrecision(15); // a sum of two floats has an error after these
    const near = +plain.toPrecision(6);
    if (!plain || Math.sign(near - plain) !== -way) return String(near);
    return String(+(near + way * 10 ** (Math.floor(Math.log10(plain)) - 5)).toPrecision(6));
  }
  const up = (_, value) => rounded(value, 1);
  const down = (_, value) => rounded(value, -1);

  function options(width) {
    const paths = uPlot.paths.stepped({ align: 1 });
    const line = (label, ink, dash, more) => ({
      label, paths, dash, width: 2, stroke: colour(ink), value: up, points: { show: false }, ...more,
    });
    const plain = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width,
      height: width < 500 ? 240 : 300,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { drag: { x: true, y: false } },
      legend: { markers: { dash: (_, i) => ["solid", "dashed", "solid", "dashed", "dotted"][i] } },
      hooks: { ready: [sayLast], setData: [sayLast], setCursor: [(u) => u.cursor.idx ?? sayLast(u)] },
      scales: { x: { time: byTime }, y: { range: (_, low, high) => [0, high * 1.06 || 1] } },
      axes: [byTime ? { ...plain, values: TIMES, space: 80 } : { ...plain, values: numbered, space: 60 },
        { ...plain, size: 56 }],
      series: [
        byTime ? { label: "At (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }
          : { label: "After", value: (_, place) => (place == null ? "–" : named(place)) },
        line("Cap", "--muted", [8, 4], { width: 1.5, value: down }),
        line("Spent", "--spent", [], { fill: colour("--accent-soft") }),
        line("Spent and held", "--held", [5, 3]),
        line("At worst-case prices", "--saved", [2, 3], { value: down }),
      ],
      bands: [{ series: [3, 2], fill: (u) => hatch(u.ctx) }],
    };
  }

  // away from the lines, the legend says where they end
  function sayLast(u) {
    u.setLegend({ idx: u.data[0].length - 1 }, false);
  }

  function draw() {
    const data = columns();
    plot?.destroy();
    plot = null;
    place.hidden = data[0].length < 2;
    axis.hidden = place.hidden;
    if (!place.hidden) plot = new uPlot(options(place.clientWidth), data, place);
  }

  axis.addEventListener("click", ({ target }) => {
    if (!target.dataset.axis) return;
    byTime = target.dataset.axis === "time";
    for (const button of axis.children) {
      button.setAttribute("aria-pressed", String(button === target));
    }
    draw();
  });
  new ResizeObserver(() => {
    if (plot && Math.abs(plot.width - place.clientWidth) > 1) draw();
  }).observe(place);
  dark.addEventListener("change", draw);
  document.addEventListener("refreshed", () => (plot ? plot.setData(columns()) : draw()));
  draw();
})();
