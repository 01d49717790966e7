// Asks again as one types, and draws. The server writes every number; what is drawn is read from
// the tables that it wrote. Only the latest question counts: an older one under way is given up.
"use strict";

(() => {
  const form = () => document.getElementById("question");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const value = (element) => Number(element.value.replace("inf", "Infinity"));
  const underWay = { curve: null, panel: null };
  const PROBLEMS = { curve: "problem", panel: "panel-problem" };
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
    // a parser without scripts reads what is for browsers without scripts as fields of the form
    for (const other of page.querySelectorAll("noscript")) other.remove();
    if (!page.getElementById("question")) throw new Error(`the server says ${answer.status}`);
    return { page, url: answer.url };
  }

  async function ask(part) {
    const busy = document.getElementById(part === "curve" ? "answer" : "panel-answer");
    busy.setAttribute("aria-busy", "true");
    try {
      // rows that are there at once are shown while the others are worked out
      if (part === "panel" && showsRows()) {
        show(part, (await fetched(part, address(null, { part: "begun" }))).page);
        busy.removeAttribute("aria-busy"); // a line says that more is to come
      }
      show(part, (await fetched(part, address(null, { part }))).page);
      busy.removeAttribute("aria-busy");
    } catch (error) {
      fail(busy, error);
    }
  }

  const showsRows = () => document.getElementById("panel").dataset.show === "compare";

  // puts an answer, or a refusal, into the page
  function show(part, page) {
    if (refused(part, page) && answered(part)) keep(part, answers(part), page);
    else {
      for (const old of places(part)) {
        const fresh = page.getElementById(old.id);
        if (fresh) renew(old, fresh);
      }
    }
    mark(part);
    draw();
  }

  const places = (part) => [...document.querySelectorAll(`[data-part="${part}"]`)];
  const refused = (part, page) => page.getElementById(PROBLEMS[part]);
  const answered = (part) => places(part).some((place) => place.querySelector("data"));

  // the nodes of an answer, without the refusal of a later question
  function answers(part) {
    return new Map(places(part).map((place) => {
      const kept = [...(place.querySelector(".stale") ?? place).childNodes];
      const ours = (node) => node.id !== PROBLEMS[part] && node.className !== "stale-says";
      return [place.id, kept.filter(ours)];
    }));
  }

  // the last answer stays, dimmed, below the refusal of a later question
  function keep(part, kept, page) {
    const problem = document.adoptNode(refused(part, page));
    for (const place of places(part)) {
      if (!kept.get(place.id)?.length) continue;
      const stale = document.createElement("div");
      stale.className = "stale";
      stale.append(...kept.get(place.id));
      place.replaceChildren(stale);
    }
    const first = document.getElementById(part === "curve" ? "answer" : "panel-answer");
    const says = document.createElement("p");
    says.className = "stale-says";
    says.textContent = "The answer to the question before:";
    first.querySelector(".stale")?.prepend(says);
    first.prepend(problem);
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
    const slow = showsRows() ? 700 : 250;
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
    const before = answered("curve") ? answers("curve") : null;
    try {
      underWay.panel?.abort();
      const { page, url } = await fetched("curve", address(submitter, { part: "curve" }));
      main.replaceChildren(...document.adoptNode(page.getElementById("main")).childNodes);
      if (before && refused("curve", document)) keep("curve", before, document);
      const clean = new URL(url);
      clean.searchParams.delete("part");
      clean.searchParams.delete("do");
      // typed words are in the address already: going back does not meet the same question twice
      if (clean.href !== location.href) history.pushState(null, "", clean);
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

  // ---------------------------------------------------------------------------------- tabs

  // arrow keys move between tabs; Enter opens one, for its answer may take a while
  const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

  document.addEventListener("keydown", (event) => {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    const at = tabs.indexOf(event.target);
    if (at < 0 || !(event.key in STEPS)) return;
    event.preventDefault();
    const to = at + STEPS[event.key];
    const last = tabs.length - 1;
    // beyond an end: the arrow goes round, Home and End stay
    const next = Number.isFinite(to) ? (to + tabs.length) % tabs.length : to < 0 ? 0 : last;
    tabs[next].focus();
    only(tabs[next]);
  });

  // one tab at a time is reached by the key Tab
  function only(reached) {
    for (const tab of document.querySelectorAll("[role=tab]")) tab.tabIndex = tab === reached ? 0 : -1;
  }

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
    document.getElementById("readout").hidden = !points.length;
    if (!points.length) return put("plot", null);
    const end = (i) => {
      const sorted = points.map((p) => [p[i], p[0]]).sort((a, b) => a[0] - b[0]);
      return [sorted.map((p) => p[0]), sorted.map((p) => p[1])];
    };
    const at = ["upper", "given-at"].map((id) => value(document.getElementById(id)));
    const asked = form().elements.given.value === "delta" ? at : at.reverse();
    const isStale = document.querySelector("#answer .stale") !== null;
    document.getElementById("plot").classList.toggle("stale", isStale);
    const here = !isStale && asked.every(Number.isFinite) && asked[1] > 0;
    const data = uPlot.join([end(1), end(2), here ? [[asked[0]], [asked[1]]] : [[], []]]);
    const line = { spanGaps: true, scale: "y" };
    read(null);
    put("plot", data, {
      legend: { live: false },
      hooks: { setCursor: [(u) => read(nearest(rows, u.cursor.left < 0 ? NaN : u.posToVal(u.cursor.left, "x")))] },
      scales: { x: { time: false }, y: { distr: 3 } },
      axes: [axis("privacy loss ε (nats)"), axis("δ", { size: 64, splits: decades, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(power) })],
      series: [
        { label: "ε" },
        { ...line, label: "lower bound", stroke: colour("--line-strong"), width: 6, points: { show: false } },
        { ...line, label: "upper bound", stroke: colour("--spent"), width: 1.75,
          points: { show: true, size: 5, fill: colour("--spent") } },
        { ...line, label: "asked", stroke: colour("--held"), paths: () => null,
          points: { show: true, size: 12, width: 3, stroke: colour("--held"), fill: colour("--card") } },
      ],
    });
  }

  // the row of the table whose upper bound is nearest to an epsilon
  function nearest(rows, epsilon) {
    const far = (row) => Math.abs(value(row.querySelectorAll("data")[2]) - epsilon);
    const known = rows.filter((row) => Number.isFinite(far(row)));
    return known.length ? known.reduce((a, b) => (far(b) < far(a) ? b : a)) : null;
  }

  // says a row of the table below the plot
  function read(row) {
    const place = document.getElementById("readout");
    const [delta, lower, upper] = row ? [...row.querySelectorAll("data")].map((d) => d.textContent) : [];
    const words = row ? `At δ = ${delta}, ε lies in [${lower}, ${upper}].`
      : "The ring is what was asked. Point at the curve to read other values.";
    if (place.textContent !== words) place.textContent = words;
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

  function drawPrices() {
    const rows = [...document.querySelectorAll("#stops tbody tr")];
    const of = (id) => rows.map((_, i) => {
      const found = document.querySelector(`#${id}-${i} data`);
      return found && Number.isFinite(value(found)) ? value(found) : null;
    });
    const stops = rows.map((row) => +row.querySelector("[name=stop]").value);
    const known = of("epsilons").every((price) => price !== null);
    // the legend has the words of the table, where the server has rounded up
    const said = (id) => (_u, _price, _series, i) =>
      document.querySelector(`#${id}-${i} data`)?.textContent ?? "–";
    const line = (label, id, ink, dash, more) => ({
      label, dash, stroke: colour(ink), width: 2, value: said(id), points: { show: true, size: 6 }, ...more });
    // away from the lines, the legend says the last stop
    const sayLast = (u) => u.setLegend({ idx: stops.length - 1 }, false);
    put("prices-plot", known ? [stops, of("separate"), of("renyi"), of("epsilons")] : null, {
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, high * 1.08 || 1] } },
      hooks: { ready: [sayLast], setCursor: [(u) => u.cursor.idx ?? sayLast(u)] },
      axes: [axis("steps run before stopping"), axis("price ε (nats)", { size: 56 })],
      series: [
        { label: "stop after", value: (_, stop) => (stop == null ? "–" : String(stop)) },
        line("each stop apart", "separate", "--held", [3, 3]),
        line("Rényi filter", "renyi", "--bad", [9, 4]),
        line("this schedule", "epsilons", "--spent", [], { width: 2.5 }),
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
    only(document.querySelector("[role=tab][aria-selected=true]"));
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
