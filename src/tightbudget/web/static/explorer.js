// Asks again as one types, and draws. The server writes every number; what is drawn is read from
// the tables that it wrote. Only the latest question counts: an older one under way is given up.
"use strict";

(() => {
  const form = () => document.getElementById("question");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const value = (element) => Number(element.value.replace("inf", "Infinity"));
  const underWay = { curve: null, panel: null };
  const plots = new Map();
  let timers = [];
  document.documentElement.classList.add("js");

  // ------------------------------------------------------------------------------- asking

  function address(submitter = null, more = {}) {
    const fields = new URLSearchParams(new FormData(form(), submitter));
    const only = new URLSearchParams();
    const optional = (name) => "optional" in (form().elements[name].dataset ?? {});
    for (const [name, given] of fields) if (given !== "" || !optional(name)) only.append(name, given);
    // the last word on what is open is the button that was pressed
    const show = only.getAll("show").at(-1);
    only.delete("show");
    only.append("show", show);
    for (const [name, given] of Object.entries(more)) only.append(name, given);
    return `/explorer?${only}`;
  }

  async function fetched(part, url) {
    underWay[part]?.abort();
    underWay[part] = new AbortController();
    const answer = await fetch(url, { signal: underWay[part].signal });
    const text = await answer.text();
    const page = new DOMParser().parseFromString(text, "text/html");
    if (!page.getElementById("question")) throw new Error(`the server says ${answer.status}`);
    return { page, url: answer.url };
  }

  async function ask(part) {
    const busy = document.getElementById(part === "curve" ? "answer" : "panel-answer");
    busy.setAttribute("aria-busy", "true");
    try {
      const { page } = await fetched(part, address(null, { part }));
      for (const old of document.querySelectorAll(`[data-part="${part}"]`)) {
        const fresh = page.getElementById(old.id);
        if (fresh) renew(old, fresh);
      }
      mark(part);
      draw();
      busy.removeAttribute("aria-busy");
    } catch (error) {
      fail(busy, error);
    }
  }

  // keeps what is open open
  function renew(old, fresh) {
    const open = [...old.querySelectorAll("details")].map((details) => details.open);
    old.replaceChildren(...document.adoptNode(fresh).childNodes);
    old.querySelectorAll("details").forEach((details, i) => (details.open = open[i] ?? false));
  }

  function fail(busy, error) {
    if (error.name === "AbortError") return; // a later question is under way
    busy.removeAttribute("aria-busy");
    const said = document.createElement("p");
    said.className = "notice notice-bad";
    said.setAttribute("role", "alert");
    said.textContent = `No answer: ${error.message}.`;
    busy.replaceChildren(said);
  }

  // the field that a refusal is about
  function mark(part) {
    if (part !== "curve") return;
    const name = document.getElementById("problem")?.dataset.field;
    for (const field of form().querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    const field = name && document.getElementById(name);
    field?.setAttribute("aria-invalid", "true");
    field?.setAttribute("aria-describedby", "problem");
  }

  function later() {
    timers.forEach(clearTimeout);
    const slow = document.getElementById("panel").dataset.show === "compare" ? 700 : 250;
    timers = [
      setTimeout(() => {
        history.replaceState(null, "", address());
        ask("curve");
      }, 120),
      setTimeout(() => ask("panel"), slow),
    ];
  }

  // another form: a mechanism more, other parameters, another panel
  async function reshape(submitter) {
    timers.forEach(clearTimeout);
    const main = document.getElementById("main");
    const focused = document.activeElement?.id || "";
    const shown = submitter?.name === "show" ? submitter.value : "";
    try {
      underWay.panel?.abort();
      const { page, url } = await fetched("curve", address(submitter, { part: "curve" }));
      main.replaceChildren(...document.adoptNode(page.getElementById("main")).childNodes);
      const clean = new URL(url);
      clean.searchParams.delete("part");
      clean.searchParams.delete("do");
      history.pushState(null, "", clean);
      const tab = shown && main.querySelector(`.tab[value="${shown}"]`);
      (tab || document.getElementById(focused))?.focus({ preventScroll: true });
      begin();
    } catch (error) {
      fail(document.getElementById("answer"), error);
    }
  }

  document.addEventListener("input", ({ target }) => {
    if (target.dataset.for) slid(target);
    else match(target);
    if (form().contains(target) && !("shapes" in target.dataset)) later();
  });
  document.addEventListener("change", ({ target }) => {
    if ("shapes" in target.dataset || target.id === "plan") reshape(null);
  });
  document.addEventListener("submit", (event) => {
    if (event.target !== form()) return;
    event.preventDefault();
    reshape(event.submitter);
  });
  addEventListener("popstate", () => location.reload());

  // ------------------------------------------------------------------------------- sliders

  const neighbour = (id, step) => document.getElementById(id.replace(/\d+/, (i) => +i + step));

  function slid(slider) {
    const field = document.getElementById(slider.dataset.for);
    let to = +slider.value;
    if (field.name === "stop") {
      const [before, after] = [neighbour(field.id, -1), neighbour(field.id, 1)];
      to = Math.max(to, before ? +before.value + 1 : 1);
      if (after) to = Math.min(to, +after.value - 1);
    }
    slider.value = field.value = to;
  }

  function match(field) {
    const slider = document.querySelector(`[data-for="${field.id}"]`);
    if (!slider) return;
    slider.max = Math.max(+slider.max, +field.value || 0);
    slider.value = field.value;
  }

  // ------------------------------------------------------------------------------- drawing

  const exact = (_, given) => (given == null ? "–" : String(+given.toPrecision(6)));

  function axis(label, more) {
    return {
      label, labelSize: 22, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif",
      stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 }, ...more,
    };
  }

  function put(id, data, options) {
    const place = document.getElementById(id);
    plots.get(id)?.destroy();
    plots.delete(id);
    if (!place) return;
    place.hidden = data === null || data[0].length < 2;
    if (place.hidden) return;
    const width = place.clientWidth;
    plots.set(id, new uPlot({ width, height: width < 500 ? 280 : 360, ...options }, data, place));
  }

  // δ(ε): the lower bound wide and pale, the upper one thin, dark and dotted on top of it
  function drawCurve() {
    const rows = [...document.querySelectorAll("#points-table tbody tr")];
    const points = rows
      .map((row) => [...row.querySelectorAll("data")].map(value))
      .filter(([delta, , upper]) => delta > 0 && Number.isFinite(upper));
    if (!points.length) return put("plot", null);
    const end = (i) => {
      const sorted = points.map((p) => [p[i], p[0]]).sort((a, b) => a[0] - b[0]);
      return [sorted.map((p) => p[0]), sorted.map((p) => p[1])];
    };
    const at = ["upper", "given-at"].map((id) => value(document.getElementById(id)));
    const asked = form().elements.given.value === "delta" ? at : at.reverse();
    const here = asked.every(Number.isFinite) && asked[1] > 0;
    const data = uPlot.join([end(1), end(2), here ? [[asked[0]], [asked[1]]] : [[], []]]);
    const line = { spanGaps: true, scale: "y", value: small };
    put("plot", data, {
      scales: { x: { time: false }, y: { distr: 3 } },
      axes: [axis("privacy loss ε (nats)"), axis("δ", { size: 64, splits: decades, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(power) })],
      series: [
        { label: "ε", value: exact },
        { ...line, label: "lower bound", stroke: colour("--line-strong"), width: 6, points: { show: false } },
        { ...line, label: "upper bound", stroke: colour("--spent"), width: 1.75,
          points: { show: true, size: 5, fill: colour("--spent") } },
        { ...line, label: "asked", stroke: colour("--held"), paths: () => null,
          points: { show: true, size: 12, width: 3, stroke: colour("--held"), fill: colour("--card") } },
      ],
    });
  }

  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

  // powers of ten, few enough to be read
  function decades(_plot, _axis, least, most) {
    const [low, high] = [Math.ceil(Math.log10(least) - 1e-9), Math.floor(Math.log10(most) + 1e-9)];
    const step = Math.ceil((high - low + 1) / 8);
    const found = [];
    for (let k = high; k >= low; k -= step) found.unshift(10 ** k);
    return found;
  }

  function power(given) {
    const k = Math.round(Math.log10(given));
    const digits = [...String(Math.abs(k))].map((digit) => SUPERSCRIPTS[digit]).join("");
    return k === 0 ? "1" : `10${k < 0 ? "⁻" : ""}${digits}`;
  }

  const small = (_, given) => (given == null ? "–" : given.toExponential(2));

  function drawPrices() {
    const rows = [...document.querySelectorAll("#stops tbody tr")];
    const of = (id) => rows.map((_, i) => {
      const found = document.querySelector(`#${id}-${i} data`);
      return found && Number.isFinite(value(found)) ? value(found) : null;
    });
    const stops = rows.map((row) => +row.querySelector("[name=stop]").value);
    const known = of("epsilons").every((price) => price !== null);
    const line = (label, ink, dash, more) => ({
      label, dash, stroke: colour(ink), width: 2, value: exact, points: { show: true, size: 6 }, ...more });
    put("prices-plot", known ? [stops, of("separate"), of("renyi"), of("epsilons")] : null, {
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, high * 1.08 || 1] } },
      axes: [axis("steps run before stopping"), axis("price ε (nats)", { size: 56 })],
      series: [
        { label: "stop after", value: exact },
        line("each stop apart", "--held", [3, 3]),
        line("Rényi filter", "--bad", [9, 4]),
        line("this schedule", "--spent", [], { width: 2.5 }),
      ],
    });
  }

  function draw() {
    drawCurve();
    drawPrices();
  }

  function begin() {
    for (const slider of document.querySelectorAll("[data-for]")) {
      slider.hidden = false;
      match(document.getElementById(slider.dataset.for));
    }
    draw();
    if (document.querySelector("#panel-answer .waiting")) ask("panel");
  }

  dark.addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) draw();
    width = innerWidth;
  });
  begin();
})();
